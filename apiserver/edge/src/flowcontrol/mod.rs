//! API priority and fairness: who is served when not everybody can be.
//!
//! A request is classified by its [`Schema`], which names a priority level. Each level has seats; a request takes as
//! many as it is wide, waits in a queue of its flow while there are none, and gives them back when its [`Ticket`] is
//! dropped. See <https://kubernetes.io/docs/concepts/cluster-administration/flow-control/> and KEP-1040.
//!
//! A request that finds seats costs two short locks and no timer, task or allocation. Limits are adjusted by the
//! requests themselves, so an idle server does nothing.

mod classify;
mod config;
mod controller;
mod dump;
mod limits;
mod measure;
mod queueset;
pub mod shuffle;
mod state;
#[cfg(test)]
mod tests;
pub mod width;

pub use controller::{maintain, producer_check};
pub use queueset::Refusal;
pub use state::{Flow, FlowControl, Options};

use coracle_api::ApiError;
use coracle_requests::RequestInfo;
use queueset::{Arrival, Place};
use state::Waiter;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What upstream answers with 429, as plain text.
pub const TOO_MANY: &str = "Too many requests, please try again later.\n";

/// The same for those who are refused later than at the door.
pub fn too_many() -> ApiError {
    ApiError::too_many_requests(TOO_MANY.trim_end(), 1)
}

/// Seats in use by a running request; dropping it gives them back.
pub struct Ticket {
    flow: Flow,
    place: Place,
    seats: u32,
    began: Instant,
    watch: bool,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        self.flow.stats.ended(self.seats, took, self.watch);
        let level = &self.flow.level;
        level.with(|set, now, wake| {
            set.finish(now, self.place, self.seats, took);
            set.dispatch(now, wake);
        });
    }
}

/// A request in a queue; dropping it takes the request out, whether it was told to run or not.
struct InLine {
    flow: Flow,
    queue: usize,
    id: u64,
    seats: u32,
    armed: bool,
}

impl InLine {
    /// False if the request runs already.
    fn leave(&mut self, why: Refusal) -> bool {
        self.armed = false;
        let waited = self.flow.level.with(|set, now, wake| {
            let waited = set.give_up(now, self.queue, self.id, why);
            set.dispatch(now, wake);
            waited
        });
        if waited {
            self.flow.stats.refused(why);
        }
        waited
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        if self.armed && !self.leave(Refusal::Cancelled) {
            // Its turn came while its client went.
            self.flow.level.with(|set, now, wake| {
                set.finish(now, Some(self.queue), self.seats, Duration::ZERO);
                set.dispatch(now, wake);
            });
        }
    }
}

/// Who asks, for those who look into the queues.
pub struct Asker<'a> {
    pub user: &'a str,
    pub info: &'a RequestInfo,
}

impl FlowControl {
    /// Waits for seats, at most as long as [`Options::patience`]. Cancel-safe: a caller that goes away leaves its queue.
    pub async fn enter(&self, flow: &Flow, seats: u32, asker: Asker<'_>) -> Result<Ticket, Refusal> {
        self.adjust_if_due();
        let watch = asker.info.verb == "watch";
        let ticket = |place| {
            flow.stats.began(seats);
            Ticket { flow: flow.clone(), place, seats, began: Instant::now(), watch }
        };
        let mut told = None;
        let arrival = flow.level.with(|set, now, _| {
            set.arrive(now, flow.hash, seats, || {
                let (tell, receiver) = oneshot::channel();
                told = Some(receiver);
                Waiter::new(tell, flow, &asker)
            })
        });
        match (arrival, told) {
            (Arrival::Run(place), _) => {
                flow.stats.waited(Duration::ZERO, true);
                Ok(ticket(place))
            }
            (Arrival::Wait { queue, id }, Some(told)) => {
                let line = InLine { flow: flow.clone(), queue, id, seats, armed: true };
                self.wait(line, told).await?;
                Ok(ticket(Some(queue)))
            }
            (Arrival::Rejected(why), _) => {
                flow.stats.refused(why);
                flow.stats.waited(Duration::ZERO, false);
                Err(why)
            }
            (Arrival::Wait { .. }, None) => Err(Refusal::Cancelled),
        }
    }

    async fn wait(&self, mut line: InLine, told: oneshot::Receiver<()>) -> Result<(), Refusal> {
        let arrived = Instant::now();
        let stats = line.flow.stats.clone();
        let _counted = stats.in_queue(line.seats);
        // Another flow's turn may have come with this arrival.
        line.flow.level.with(|set, now, wake| set.dispatch(now, wake));
        let told = tokio::time::timeout(self.options().patience, told).await;
        if matches!(told, Ok(Ok(()))) || !line.leave(Refusal::TimeOut) {
            line.armed = false;
            stats.waited(arrived.elapsed(), true);
            return Ok(());
        }
        stats.waited(arrived.elapsed(), false);
        Err(Refusal::TimeOut)
    }
}
