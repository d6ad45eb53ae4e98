//! The seats of a request, which it leaves while it waits for somebody else: for its body, for its turn at large work, for
//! its client to take what was sent. Seats are few, and who holds them without using them keeps everybody from the server.

use super::RequestInfo;
use crate::flowcontrol::{self, Asker, Flow, Ticket};
use crate::http::ServerState;
use coracle_api::ApiError;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// A client that takes nothing of its answer for so long has its request wait without a seat. Whoever reads takes the next
/// piece within a round trip.
const DEFAULT_DURATION: Duration = Duration::from_millis(100);

/// From one attempt to have a seat again to the next, where there are more who wait than may: what upstream tells those
/// whom it refuses.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Of one request. Without a flow (streams have none) there is nothing to leave.
#[derive(Default)]
pub struct Seats {
    flow: Option<Flow>,
    user: String,
    ticket: Mutex<Option<Ticket>>,
}

impl Seats {
    pub fn new(user: &str) -> Self {
        Self { user: user.to_owned(), ..Self::default() }
    }

    /// The request was classified; these are its seats, if it has any.
    pub fn sit(&mut self, flow: Flow, ticket: Option<Ticket>) {
        self.flow = Some(flow);
        *self.ticket.lock() = ticket;
    }

    pub fn flow(&self) -> Option<&Flow> {
        self.flow.as_ref()
    }

    /// Whose request it is.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Gives the seats to others.
    pub fn leave(&self) {
        drop(self.ticket.lock().take());
    }

    /// The seats move on with the answer.
    fn pass_on(&self) -> Option<Self> {
        let ticket = self.ticket.lock().take()?;
        Some(Self { flow: self.flow.clone(), user: self.user.clone(), ticket: Mutex::new(Some(ticket)) })
    }

    /// Waits for a seat again.
    ///
    /// # Errors
    /// 429: too many wait already, or it took too long.
    pub async fn again(&self, server: &ServerState, info: &RequestInfo) -> Result<(), ApiError> {
        let Some(flow) = &self.flow else { return Ok(()) };
        let entered = server.flow.enter(flow, 1, Asker { user: &self.user, info }).await;
        let ticket = entered.map_err(|_| flowcontrol::too_many())?;
        *self.ticket.lock() = Some(ticket);
        Ok(())
    }
}

/// The seats of an answer that is made while it is sent: held while its client takes it.
pub struct Taken {
    seats: Seats,
    state: Mutex<State>,
}

struct State {
    /// When the client took something last.
    took: Instant,
    left: bool,
}

impl Taken {
    /// `None` without seats.
    pub fn new(seats: &Seats) -> Option<Arc<Self>> {
        let seats = seats.pass_on()?;
        let taken = Arc::new(Self { seats, state: Mutex::new(State { took: Instant::now(), left: false }) });
        taken.watch();
        Some(taken)
    }

    /// The client took what there was. False if it took so long that the seats are gone: [`again`](Self::again) comes first.
    pub fn is_seated(&self) -> bool {
        let mut state = self.state.lock();
        state.took = Instant::now();
        !state.left
    }

    /// Waits for a seat, however long that takes.
    pub async fn again(self: Arc<Self>, server: Arc<ServerState>, info: RequestInfo) {
        while self.seats.again(&server, &info).await.is_err() {
            sleep(RETRY_INTERVAL).await;
        }
        *self.state.lock() = State { took: Instant::now(), left: false };
        self.watch();
    }

    fn watch(self: &Arc<Self>) {
        tokio::spawn(leave_when_untaken(Arc::downgrade(self)));
    }

    /// When to look again; `None` if the seats are gone now.
    fn look(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        let due = state.took + DEFAULT_DURATION;
        if due > Instant::now() {
            return Some(due);
        }
        state.left = true;
        self.seats.leave();
        None
    }
}

/// Ends with the answer, or when its client does not take it.
async fn leave_when_untaken(taken: Weak<Taken>) {
    while let Some(due) = taken.upgrade().and_then(|taken| taken.look()) {
        sleep_until(due).await;
    }
}
