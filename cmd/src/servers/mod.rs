//! The servers of a cluster as a node knows them: all that the Service `kubernetes` leads to, kept on the disk; one is asked,
//! until it does not answer and another one does.
//!
//! ```text
//! asked ---- a call fails, or no answer within WAIT_TIMEOUT ----> is asked again, and all others beside it
//!   ^                                                             |
//!   |  it answers, or nobody does                                 v  another answers first
//!   +--------------------------------------------------- that one is asked from now on
//! ```
//! Whoever is given up loses its watches at once, so that those who watch turn to the next: on one store their revisions go on.

mod call;
mod learn;

use axum::http::{Request, Uri};
use coracle_api::error::chain;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::client::Body;
use parking_lot::{Mutex, RwLock};
use rand::seq::SliceRandom;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often the one that is asked is looked at, where there are others; and how long its answer may take. Together, and with
/// the pause of whoever watches, less than five seconds: pauses and partitions send no reset.
const LOOK_INTERVAL: Duration = Duration::from_millis(1500);
const WAIT_TIMEOUT: Duration = Duration::from_millis(1500);
/// Nobody answered a moment ago: calls that fail meanwhile do not ask everybody again.
const SETTLE_DURATION: Duration = Duration::from_secs(1);
/// In the data directory: the addresses that were learnt, one a line.
const KEPT: &str = "servers";

/// Makes a client of one server.
type Make = Arc<dyn Fn(&Uri) -> Result<kube::Client, String> + Send + Sync>;

/// The server that is asked.
#[derive(Clone)]
struct Place {
    server: Uri,
    /// It was given up.
    gone: CancellationToken,
}

pub struct Servers {
    /// By whom the node joined; it is never forgotten, as it may be a name that leads to any of them.
    first: Uri,
    listed: RwLock<Vec<Uri>>,
    place: RwLock<Place>,
    /// One decision at a time, and when it was last that nobody else answers.
    deciding: tokio::sync::Mutex<Option<Instant>>,
    kept: Option<PathBuf>,
}

impl Servers {
    /// Those of an earlier start, and the one that is given by hand, which is asked first. Without a directory none are kept.
    pub fn load(first: Uri, data_dir: Option<&Path>) -> Arc<Self> {
        let kept = data_dir.map(|dir| dir.join(KEPT));
        let text = kept.as_ref().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        let place = Place { server: first.clone(), gone: CancellationToken::new() };
        Arc::new(Self {
            listed: RwLock::new(text.lines().filter_map(|line| line.parse().ok()).collect()),
            place: RwLock::new(place),
            deciding: tokio::sync::Mutex::default(),
            first,
            kept,
        })
    }

    /// A client of whichever is asked. `make` is given each server's address.
    ///
    /// # Errors
    /// Of `make`.
    pub fn client(
        self: &Arc<Self>,
        make: impl Fn(&Uri) -> Result<kube::Client, String> + Send + Sync + 'static,
    ) -> Result<kube::Client, String> {
        let clients = Clients { make: Arc::new(make), made: Arc::default() };
        // Credentials that are worth nothing are told at once.
        clients.of(&self.place().server)?;
        Ok(call::client(self.clone(), clients))
    }

    /// The addresses of all.
    pub fn all(&self) -> Vec<Uri> {
        let listed = self.listed.read();
        let mut all: Vec<Uri> = listed.iter().filter(|server| **server != self.first).cloned().collect();
        all.push(self.first.clone());
        all
    }

    fn place(&self) -> Place {
        self.place.read().clone()
    }

    fn has_left(&self, place: &Place) -> bool {
        self.place.read().server != place.server || place.gone.is_cancelled()
    }

    /// Takes what the cluster says, and keeps it.
    fn know(&self, mut servers: Vec<Uri>) {
        servers.sort_by_key(ToString::to_string);
        if servers.is_empty() || *self.listed.read() == servers {
            return;
        }
        let text = servers.iter().fold(String::new(), |text, server| text + &server.to_string() + "\n");
        if let Some(path) = &self.kept
            && let Err(error) = coracle_apiserver::pki::write_private(path, text)
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "the servers' addresses are not kept");
        }
        tracing::info!(servers = ?servers, "the cluster's servers");
        *self.listed.write() = servers;
    }

    fn go_to(&self, server: Uri) {
        let mut place = self.place.write();
        tracing::warn!(from = %place.server, to = %server, "the server does not answer, another one is asked");
        place.gone.cancel();
        *place = Place { server, gone: CancellationToken::new() };
    }

    /// Whether another server is asked than this one, which seemed not to answer.
    /// `is_silent`: it was asked already.
    async fn reconsider(&self, place: &Place, clients: &Clients, is_silent: bool) -> bool {
        let others: Vec<Uri> = self.all().into_iter().filter(|other| *other != place.server).collect();
        if others.is_empty() {
            return false;
        }
        let mut nobody = self.deciding.lock().await;
        if self.has_left(place) {
            return true;
        }
        if nobody.is_some_and(|at| at.elapsed() < SETTLE_DURATION) {
            return false;
        }
        let present = (!is_silent).then(|| place.server.clone());
        match first_that_answers(present, others, clients).await {
            Some(server) if server != place.server => {
                self.go_to(server);
                true
            }
            found => {
                *nobody = found.is_none().then(Instant::now);
                false
            }
        }
    }

    /// Looks at the server that is asked, for ever, while there are others.
    pub async fn watch_over(
        self: Arc<Self>,
        make: impl Fn(&Uri) -> Result<kube::Client, String> + Send + Sync + 'static,
    ) {
        let clients = Clients { make: Arc::new(make), made: Arc::default() };
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            if self.listed.read().len() < 2 {
                continue;
            }
            let place = self.place();
            if !clients.answers(&place.server).await {
                self.reconsider(&place, &clients, true).await;
            }
        }
    }
}

/// The present one if it answers at all; else whoever does so first, in an order of chance, so that not all nodes turn to one.
async fn first_that_answers(present: Option<Uri>, mut others: Vec<Uri>, clients: &Clients) -> Option<Uri> {
    others.shuffle(&mut rand::rng());
    let ask = |server: Uri| async move { clients.answers(&server).await.then_some(server) };
    let mut asked: FuturesUnordered<_> = others.into_iter().map(ask).collect();
    let first_of_others = async {
        while let Some(answer) = asked.next().await {
            if answer.is_some() {
                return answer;
            }
        }
        None
    };
    let present = async {
        match present {
            Some(present) => ask(present).await,
            None => None,
        }
    };
    let (present, other) = tokio::join!(present, first_of_others);
    present.or(other)
}

/// One client a server, with one node's credentials.
#[derive(Clone)]
struct Clients {
    make: Make,
    made: Arc<Mutex<Vec<(Uri, kube::Client)>>>,
}

impl Clients {
    fn of(&self, server: &Uri) -> Result<kube::Client, String> {
        let mut made = self.made.lock();
        if let Some((_, client)) = made.iter().find(|(of, _)| of == server) {
            return Ok(client.clone());
        }
        let client = (self.make)(server)?;
        made.push((server.clone(), client.clone()));
        Ok(client)
    }

    /// Whether it is there and well: one that says that it is not ready is no better than one that is away.
    async fn answers(&self, server: &Uri) -> bool {
        let request = match Request::get("/readyz").body(Body::empty()) {
            Ok(request) => request,
            Err(_) => return false,
        };
        let Ok(client) = self.of(server) else { return false };
        match tokio::time::timeout(WAIT_TIMEOUT, client.send(request)).await {
            Ok(Ok(answer)) => !answer.status().is_server_error(),
            Ok(Err(error)) => {
                tracing::debug!(%server, why = chain(&error), "a server does not answer");
                false
            }
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests;
