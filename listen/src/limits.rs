//! What a connection may cost, and how many there may be.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::time::Duration;

/// Times and sizes of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For the TLS handshake. Whoever takes longer is no client.
    pub handshake: Duration,
    /// From the handshake to the first request, and from the first byte of an HTTP/1.1 request's head to its last.
    /// Upstream's ReadHeaderTimeout.
    pub head: Duration,
    /// Without a request. Upstream's IdleTimeout, which is the one that Go's clients keep connections for.
    pub idle: Duration,
    /// In which a client takes nothing of what waits for it, on any of a connection's streams. Upstream ends an answer
    /// after the request's time, 60 s, whether it moves or not.
    pub stuck: Duration,
    /// Bytes that a client may send while it has no request open. What a client may have sent of bodies that nobody
    /// wanted (1 MiB, HTTP/2's window here) fits four times; a flood of PING or SETTINGS frames does not.
    pub unasked_bytes: u64,
    /// Requests that a client may take back in [`Self::resets_within`]: each has cost its work. Clients take back a watch
    /// or two a second.
    pub resets: u32,
    pub resets_within: Duration,
    /// Of an answer that waits for a slow client, a connection (HTTP/1.1) or a stream (HTTP/2); hyper's own 400 KiB
    /// make many large lists at a time expensive. It bounds the head of an HTTP/1.1 request too.
    pub buffer_bytes: usize,
    /// Of answers that were made and not taken, a connection; while it holds so much, none of its requests is begun. Some
    /// dozens of streams with their pieces of 64 KiB, or the largest answer in one piece (an object of 3 MiB) twice.
    pub unsent_bytes: usize,
    /// Requests at a time on one HTTP/2 connection; upstream's.
    pub streams: u32,
    /// The head of an HTTP/2 request. Go's servers take 1 MiB; no client of Kubernetes needs more than a token of some
    /// kilobytes and a list of groups to impersonate.
    pub head_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(32),
            idle: Duration::from_secs(90),
            stuck: Duration::from_secs(60),
            unasked_bytes: 4 << 20,
            resets: 500,
            resets_within: Duration::from_secs(10),
            buffer_bytes: 128 << 10,
            unsent_bytes: 8 << 20,
            streams: 250,
            head_bytes: 64 << 10,
        }
    }
}

/// Files and sockets that the process may have open now. 1,024, a common default, where the kernel does not say.
pub fn descriptors() -> usize {
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    usize::try_from(soft).unwrap_or(usize::MAX)
}

/// Raises the process's soft limit of descriptors to its hard one: each connection is a descriptor, and 1,024, which
/// shells and service managers give, is one client's worth. Call it first of all; limits of listeners are shares of it.
/// A limit that cannot be raised is said in the log and left.
pub fn raise_descriptors() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) }
    });
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files stays at {}", descriptors());
    }
}
