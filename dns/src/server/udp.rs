//! Questions by UDP. All of them come through one queue, which no client may keep full.

use super::{LARGEST_QUESTION, Next, Server};
use crate::allowance::{Allowance, INTERVAL};
use crate::pace::Pace;
use crate::socket_filter;
use crate::thinning::Thinning;
use crate::zone::Directory;
use socket2::SockRef;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use tokio::net::UdpSocket;

/// What keeps one client's flood from the others.
struct Fairness {
    allowance: Allowance,
    pace: Pace,
    thinning: Thinning,
}

impl Fairness {
    fn new(a_second: u32) -> Self {
        let now = Instant::now();
        let (pace, thinning) = (Pace::new(a_second), Thinning::new(now));
        Self { allowance: Allowance::new(a_second, now), pace, thinning }
    }

    /// Whether the client's question is to be answered.
    fn admits(&mut self, socket: &UdpSocket, client: IpAddr, now: Instant) -> bool {
        let allowed = self.pace.allows(client, 1, now);
        if self.thinning.count(client, !allowed, now) {
            attach(socket, &self.thinning);
        }
        allowed
    }

    /// Once an interval: what each client may ask in the next.
    fn look(&mut self, socket: &UdpSocket, now: Instant) {
        if !self.allowance.look(now) {
            return;
        }
        self.pace.set(self.allowance.a_second());
        if !self.thinning.is_empty() {
            self.thinning.measure(self.allowance.a_second(), now);
            attach(socket, &self.thinning);
        }
    }

    /// Until there is something to read, or it is time to look.
    async fn wait(&mut self, socket: &UdpSocket) -> std::io::Result<()> {
        self.allowance.queue_is_empty();
        if self.thinning.is_empty() && self.allowance.is_whole() {
            return socket.readable().await;
        }
        tokio::time::timeout(INTERVAL, socket.readable()).await.unwrap_or(Ok(()))
    }
}

impl<D: Directory + Send + Sync + 'static> Server<D> {
    /// Ends with an error of the socket alone.
    pub async fn serve_udp(self: Arc<Self>, socket: UdpSocket) -> std::io::Result<()> {
        let socket = Arc::new(socket);
        let mut fairness = Fairness::new(self.a_second);
        let mut buffer = vec![0; LARGEST_QUESTION];
        loop {
            tokio::task::consume_budget().await;
            let now = Instant::now();
            fairness.look(&socket, now);
            let (length, client) = match socket.try_recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    fairness.wait(&socket).await?;
                    continue;
                }
                // The kernel hands the ICMP errors of earlier answers to the next receive.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            };
            let ip = client.ip().to_canonical();
            if self.may_ask(ip) && fairness.admits(&socket, ip, now) {
                self.answer_udp(&socket, client, &buffer[..length]);
            }
        }
    }

    /// Never waits: an answer that the socket has no room for is lost, as any other datagram may be.
    fn answer_udp(self: &Arc<Self>, socket: &Arc<UdpSocket>, client: SocketAddr, question: &[u8]) {
        match self.begin(question, client.ip().to_canonical(), false) {
            // A client that is gone asks no more.
            Some(Next::Send(answer)) => drop(socket.try_send_to(&answer, client)),
            Some(Next::SendOld(answer, outside)) => {
                drop(socket.try_send_to(&answer, client));
                self.refresh(outside, client.ip().to_canonical());
            }
            Some(Next::Outside(outside)) => {
                let Some(turn) = self.outside.take(client.ip().to_canonical()) else { return };
                let (server, socket) = (self.clone(), socket.clone());
                tokio::spawn(async move {
                    if let Some(answer) = server.ask(*outside, false).await {
                        let _ = socket.send_to(&answer, client).await;
                    }
                    drop(turn);
                });
            }
            None => {}
        }
    }
}

/// Hands the shares to the kernel. Without that the flood is still answered at its pace alone.
fn attach(socket: &UdpSocket, thinning: &Thinning) {
    if let Err(error) = SockRef::from(socket).attach_filter(&socket_filter::program(&thinning.shares())) {
        tracing::debug!(%error, "no socket filter");
    }
}
