//! The cluster's DNS under one client's flood.

use super::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

/// How long a client waits for one datagram until it asks again; as resolvers do, but quicker.
const AGAIN: Duration = Duration::from_secs(1);

/// A question for the addresses of a name (RFC 1035).
pub fn question(name: &str) -> Vec<u8> {
    let mut message = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.extend(u8::try_from(label.len()));
        message.extend_from_slice(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

/// Asks for the API's own Service from this address, by UDP, so often; sorted times.
pub async fn honest(server: SocketAddr, client: &str, times: usize) -> Result<Vec<Duration>, Error> {
    let socket = UdpSocket::bind((client, 0)).await?;
    socket.connect(server).await?;
    let asked = question("kubernetes.default.svc.cluster.local");
    let (mut took, mut buffer) = (Vec::new(), [0; 512]);
    for _ in 0..times {
        let began = Instant::now();
        loop {
            socket.send(&asked).await?;
            let answered = tokio::time::timeout(AGAIN, socket.recv(&mut buffer)).await;
            match answered {
                Ok(Ok(length)) if length > 12 && buffer[3] & 15 == 0 && buffer[7] > 0 => break,
                Ok(Ok(_)) => return Err("an answer without addresses".into()),
                _ if began.elapsed() > AGAIN * 10 => return Err("no answer".into()),
                _ => {}
            }
        }
        took.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    took.sort_unstable();
    Ok(took)
}

/// As many questions as a socket takes, for names here and outside, until it is dropped.
pub async fn flood(server: SocketAddr, client: &str) -> Result<(), Error> {
    let socket = UdpSocket::bind((client, 0)).await?;
    for n in 0_u64.. {
        let name = if n % 2 == 0 { "kubernetes.default.svc.cluster.local" } else { "example.invalid" };
        // A full queue is what is wanted.
        let _ = socket.send_to(&question(name), server).await;
        if n % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// So many connections from this address that ask nothing.
pub async fn hold(server: SocketAddr, client: &str, count: usize) -> Result<Vec<TcpStream>, Error> {
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        held.push(connect(server, client).await?);
    }
    Ok(held)
}

async fn connect(server: SocketAddr, client: &str) -> Result<TcpStream, Error> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(client.parse()?, 0))?;
    Ok(socket.connect(server).await?)
}

/// How long one question by TCP takes from this address, connection and all.
pub async fn by_tcp(server: SocketAddr, client: &str) -> Result<Duration, Error> {
    let began = Instant::now();
    let asked = question("kubernetes.default.svc.cluster.local");
    let mut stream = connect(server, client).await?;
    let length = u16::try_from(asked.len())?.to_be_bytes();
    stream.write_all(&[&length[..], &asked].concat()).await?;
    let length = tokio::time::timeout(AGAIN * 10, stream.read_u16()).await??;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    Ok(began.elapsed())
}
