//! The members of the etcd cluster: one client each, of which one is asked until it fails.
//!
//! A read goes on to the next member. A write does so only where it certainly was not begun; of any other failure
//! nobody knows what became of it, and that is what the caller is told.

use crate::StoreError;
use etcd_client::{Certificate, Client, ConnectOptions, Error, GetOptions, Identity, TlsOptions};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tonic::Code;

/// Patience with a member that is asked to read; then the next one is.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// etcd itself gives up a write after seven seconds, and says so.
const WRITE_TIMEOUT: Duration = Duration::from_secs(8);
/// An answer that takes longer is told in the log.
const SLOW_TIMEOUT: Duration = Duration::from_secs(1);
/// Where any answer is good enough, the next member is asked so long after the one before.
const NEXT_MEMBER_DELAY: Duration = Duration::from_millis(500);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection whose other end is silent for so long is given up: pauses and partitions send no reset.
const PING_INTERVAL: Duration = Duration::from_secs(1);
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// PEM texts towards etcd.
#[derive(Clone, Default)]
pub struct Tls {
    pub ca: Option<Vec<u8>>,
    /// Certificate and key of the client.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Without the key.
impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("ca", &self.ca.is_some())
            .field("identity", &self.identity.is_some())
            .finish()
    }
}

struct Member {
    endpoint: String,
    client: Client,
    /// Whether it is known to belong to the cluster since it was last turned to.
    checked: AtomicBool,
}

pub(super) struct Members {
    list: Vec<Member>,
    /// A key that may be read by whoever has no rights but those that are needed.
    probe: String,
    current: AtomicUsize,
    /// Of the cluster that answered first: members of another one are refused.
    cluster: Mutex<Option<u64>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

enum Failure {
    /// Another member can do no better.
    Final(StoreError),
    /// It was not begun.
    Refused(String),
    /// It may have been done.
    Unknown(String),
}

impl Members {
    /// `probe` is a key under the prefix.
    pub async fn new(endpoints: &[String], tls: &Tls, probe: String) -> Result<Self, StoreError> {
        let mut list = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints {
            let client = Client::connect([endpoint], Some(options(endpoint, tls))).await;
            let client = client.map_err(|e| unavailable(endpoint, &e.to_string()))?;
            list.push(Member { endpoint: endpoint.clone(), client, checked: AtomicBool::new(false) });
        }
        if list.is_empty() {
            return Err(StoreError::Unavailable("no server of etcd is named".to_owned()));
        }
        Ok(Self { list, probe, current: AtomicUsize::new(0), cluster: Mutex::default() })
    }

    /// The member that is asked at the moment: its number, its address, and a client.
    pub fn present(&self) -> (usize, &str, Client) {
        let index = self.current.load(Relaxed);
        (index, &self.list[index].endpoint, self.list[index].client.clone())
    }

    /// The next member takes over from this one, if nobody has changed it already.
    pub fn leave(&self, index: usize) {
        self.list[index].checked.store(false, Relaxed);
        let next = (index + 1) % self.list.len();
        let _ = self.current.compare_exchange(index, next, Relaxed, Relaxed);
    }

    /// Asks a member which cluster it belongs to, before anything else is asked of it.
    async fn check(&self, member: &Member) -> Result<(), Failure> {
        if !member.checked.load(Relaxed) {
            self.ask_cluster(member).await?;
            member.checked.store(true, Relaxed);
        }
        Ok(())
    }

    async fn ask_cluster(&self, member: &Member) -> Result<(), Failure> {
        let mut kv = member.client.kv_client();
        let ask = kv.get(self.probe.as_str(), Some(GetOptions::new().with_serializable().with_keys_only()));
        let answer = match tokio::time::timeout(READ_TIMEOUT, ask).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(Failure::of(error).before_the_call()),
            Err(_) => return Err(Failure::Refused(format!("no answer within {} s", READ_TIMEOUT.as_secs()))),
        };
        let id = answer.header().map_or(0, |header| header.cluster_id());
        let known = *self.cluster.lock().get_or_insert(id);
        if known != id {
            let text = format!("the servers of etcd belong to different clusters, {known:x} and {id:x}");
            return Err(Failure::Refused(text));
        }
        Ok(())
    }

    /// Whatever member answers first. They are asked one after the other, each a moment after the one before, so that one that
    /// is silent holds nobody up; which one is asked otherwise stays.
    pub async fn any<T, F>(&self, call: impl Fn(Client) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let first = self.current.load(Relaxed);
        let ask = |turn: u32| {
            let member = &self.list[(first + turn as usize) % self.list.len()];
            let answer = call(member.client.clone());
            async move {
                tokio::time::sleep(NEXT_MEMBER_DELAY * turn).await;
                // Only of the one that is asked otherwise is it remembered: it forgets it when it is left.
                if turn == 0 {
                    self.check(member).await?
                } else {
                    self.ask_cluster(member).await?
                }
                answer.await.map_err(Failure::of)
            }
        };
        let turns = 0..u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let mut asked: FuturesUnordered<_> = turns.map(ask).collect();
        let mut why = Vec::new();
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(answer) => return Ok(answer),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Unknown(text) | Failure::Refused(text)) => why.push(text),
            }
        }
        Err(StoreError::Unavailable(why.join("; ")))
    }

    pub async fn call<T, F>(&self, kind: Kind, call: impl Fn(Client) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let patience = if kind == Kind::Read { READ_TIMEOUT } else { WRITE_TIMEOUT };
        let mut why = Vec::new();
        for _ in 0..self.list.len() {
            let (index, endpoint, client) = self.present();
            let begun = Instant::now();
            let outcome = match self.check(&self.list[index]).await {
                Ok(()) => Ok(tokio::time::timeout(patience, call(client)).await),
                Err(failure) => Err(failure),
            };
            let took = begun.elapsed();
            if took > SLOW_TIMEOUT {
                tracing::warn!(
                    endpoint,
                    millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
                    "etcd is slow"
                );
            }
            let failure = match outcome {
                Ok(Ok(Ok(answer))) => return Ok(answer),
                Ok(Ok(Err(error))) => Failure::of(error),
                Ok(Err(_)) => Failure::Unknown(format!("no answer within {} s", patience.as_secs())),
                Err(failure) => failure,
            };
            match failure {
                Failure::Final(error) => return Err(error),
                Failure::Unknown(text) if kind == Kind::Write => {
                    self.leave(index);
                    return Err(StoreError::Unknown(format!("{endpoint}: {text}")));
                }
                Failure::Unknown(text) | Failure::Refused(text) => {
                    self.leave(index);
                    why.push(format!("{endpoint}: {text}"));
                }
            }
        }
        Err(StoreError::Unavailable(why.join("; ")))
    }
}

impl Failure {
    /// Of a question that came before: what was to be done has not begun.
    fn before_the_call(self) -> Self {
        match self {
            Self::Unknown(text) => Self::Refused(text),
            other => other,
        }
    }

    fn of(error: Error) -> Self {
        let status = match error {
            Error::GRpcStatus(status) => status,
            other => return Self::Unknown(told(&other)),
        };
        let text = status.message().to_owned();
        match (Refusal::of(&status), status.code()) {
            (_, Code::OutOfRange) => {
                Self::Final(StoreError::Compacted { asked: crate::Revision(0), oldest: crate::Revision(0) })
            }
            (Some(Refusal::NoSpace), _) => Self::Final(StoreError::ReadOnly(format!(
                "{text}: compact and defragment etcd, then disarm its alarm"
            ))),
            (Some(Refusal::Busy), _) => Self::Refused(text),
            (Some(Refusal::TooLarge), _) => Self::Final(StoreError::TooLarge(text)),
            (Some(Refusal::NoLeader), _) => Self::Refused(told(&status)),
            (None, Code::PermissionDenied | Code::Unauthenticated | Code::InvalidArgument) => {
                Self::Final(StoreError::Unavailable(text))
            }
            (None, _) if is_unconnected(&status) => Self::Refused(told(&status)),
            (None, _) => Self::Unknown(told(&status)),
        }
    }
}

/// What etcd refuses under a code that it has for other things, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    NoSpace,
    Busy,
    TooLarge,
    NoLeader,
}

/// Codes and words of etcd's refusals. It tells several by one code, and its own clients tell those apart by these texts:
/// `api/v3rpc/rpctypes/error.go` of etcd, and for a message that is too long gRPC's own limit.
const REFUSALS: [(Code, &str, Refusal); 6] = [
    (Code::ResourceExhausted, "space exceeded", Refusal::NoSpace),
    (Code::ResourceExhausted, "too many requests", Refusal::Busy),
    (Code::ResourceExhausted, "larger than max", Refusal::TooLarge),
    (Code::InvalidArgument, "request is too large", Refusal::TooLarge),
    (Code::InvalidArgument, "too many operations", Refusal::TooLarge),
    (Code::Unavailable, "no leader", Refusal::NoLeader),
];

impl Refusal {
    fn of(status: &tonic::Status) -> Option<Self> {
        let is_said = |(code, words, _): &&(Code, &str, Self)| {
            status.code() == *code && status.message().contains(words)
        };
        REFUSALS.iter().find(is_said).map(|(_, _, refusal)| *refusal)
    }
}

/// Whether there was no connection to send anything over.
fn is_unconnected(status: &tonic::Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

fn told(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    match error.downcast_ref::<tonic::Status>() {
        Some(status) if innermost.is::<tonic::Status>() => {
            format!("{:?}: {}", status.code(), status.message())
        }
        _ => innermost.to_string(),
    }
}

fn unavailable(endpoint: &str, text: &str) -> StoreError {
    StoreError::Unavailable(format!("{endpoint}: {text}"))
}

fn options(endpoint: &str, tls: &Tls) -> ConnectOptions {
    let options = ConnectOptions::new()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
        .with_keep_alive_while_idle(true)
        .with_require_leader(true);
    if !endpoint.starts_with("https://") {
        return options;
    }
    let mut config = TlsOptions::new();
    if let Some(ca) = &tls.ca {
        config = config.ca_certificate(Certificate::from_pem(ca));
    }
    if let Some((certificate, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(certificate, key));
    }
    options.with_tls(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_apart() {
        let of = |code: Code, text: &str| match Failure::of(Error::GRpcStatus(tonic::Status::new(code, text)))
        {
            Failure::Final(StoreError::ReadOnly(_)) => "read-only",
            Failure::Final(StoreError::TooLarge(_)) => "too large",
            Failure::Final(StoreError::Compacted { .. }) => "compacted",
            Failure::Final(_) => "final",
            Failure::Refused(_) => "not begun",
            Failure::Unknown(_) => "unknown",
        };
        for (code, text, expected) in [
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", "compacted"),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "read-only"),
            (Code::ResourceExhausted, "etcdserver: too many requests", "not begun"),
            (Code::ResourceExhausted, "grpc: received message larger than max (9 vs. 4)", "too large"),
            (Code::ResourceExhausted, "something else", "unknown"),
            (Code::InvalidArgument, "etcdserver: request is too large", "too large"),
            (Code::InvalidArgument, "etcdserver: too many operations in txn request", "too large"),
            (Code::InvalidArgument, "etcdserver: duplicate key given in txn request", "final"),
            (Code::PermissionDenied, "etcdserver: permission denied", "final"),
            (Code::Unavailable, "etcdserver: no leader", "not begun"),
            (Code::Unavailable, "etcdserver: leader changed", "unknown"),
        ] {
            assert_eq!(of(code, text), expected, "{code:?}: {text}");
        }
    }
}
