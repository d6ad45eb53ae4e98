//! The peer beside the store: puts of the same size into a bare etcd on the same disk. No API server, no TLS, no
//! authorization or validation; it is what upstream's writes cannot be quicker than.

use crate::load::{Answers, Limit, count};
use crate::process::Process;
use crate::table::{Row, figure, skipped};
use crate::{Error, Settings};
use bytes::{BufMut, Bytes, BytesMut};
use coracle_tests::etcd::Etcd;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const NAME: &str = "reference: raw etcd durable puts";

fn binary() -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).map(|dir| dir.join("etcd")).find(|path| path.is_file())
}

/// One member, with its data on the disk that is measured. Returns when it takes writes; `None` where there is no etcd.
pub async fn start() -> Result<Option<Etcd>, Error> {
    if binary().is_none() {
        return Ok(None);
    }
    let etcd = Etcd::durable();
    connect(&etcd.url).await?;
    Ok(Some(etcd))
}

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    if binary().is_none() {
        return Ok(vec![skipped(NAME, "no etcd in PATH (Debian: etcd-server)")]);
    }
    let mut rows = Vec::new();
    for (writers, label) in [(1, "1 writer"), (64, "64 writers")] {
        let etcd = start().await?.ok_or("etcd went away")?;
        let channel = connect(&etcd.url).await?;
        let process = Process(etcd.pid());
        let cpu = process.cpu()?;
        let done = puts(&channel, writers, Limit::time(settings.time(5))).await?;
        let n = done.latencies.len();
        let cpu = (process.cpu()? - cpu).as_secs_f64() * 1000.0 / count(n);
        rows.extend([
            figure(format!("{NAME}, {label}"), done.per_second(), "/s", n),
            figure(format!("{NAME}, {label}, p50"), done.percentile(50), "ms", n),
            figure(format!("{NAME}, {label}: etcd's CPU each"), cpu, "ms", n),
        ]);
    }
    Ok(rows)
}

type Channel = SendRequest<Full<Bytes>>;

/// Returns when a put was answered: the member has elected itself.
async fn connect(url: &str) -> Result<Channel, Error> {
    let begun = Instant::now();
    loop {
        match attempt(url).await {
            Ok(channel) => return Ok(channel),
            Err(error) if begun.elapsed() > Duration::from_secs(10) => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn attempt(url: &str) -> Result<Channel, Error> {
    let tcp = TcpStream::connect(url.trim_start_matches("http://")).await?;
    tcp.set_nodelay(true)?;
    let (mut channel, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(tcp)).await?;
    // It ends with the last sender.
    tokio::spawn(connection);
    put(&mut channel, "first").await?;
    Ok(channel)
}

/// One gRPC call of etcdserverpb.KV/Put with a value of 1 KB.
async fn put(channel: &mut Channel, key: &str) -> Result<(), Error> {
    let request = Request::post("http://etcd/etcdserverpb.KV/Put")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(put_request(key.as_bytes(), &[b'x'; 1024])?))?;
    channel.ready().await?;
    let response = channel.send_request(request).await?;
    let early = response.headers().get("grpc-status").cloned();
    let body = response.into_body().collect().await?;
    let status = early.or_else(|| body.trailers()?.get("grpc-status").cloned());
    if status.as_ref().is_some_and(|status| status == "0") {
        return Ok(());
    }
    Err(format!("etcd answers a put with {status:?}").into())
}

/// A gRPC frame that holds a PutRequest: field 1 is the key, field 2 the value, both with their lengths.
fn put_request(key: &[u8], value: &[u8]) -> Result<Bytes, Error> {
    let mut message = BytesMut::new();
    for (tag, field) in [(0x0A, key), (0x12, value)] {
        message.put_u8(tag);
        let mut length = field.len();
        while length >= 0x80 {
            message.put_u8(u8::try_from(length & 0x7F)? | 0x80);
            length >>= 7;
        }
        message.put_u8(u8::try_from(length)?);
        message.put_slice(field);
    }
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len())?);
    frame.put_slice(&message);
    Ok(frame.freeze())
}

/// Closed loop over one connection, as the API server's client does it.
async fn puts(channel: &Channel, writers: usize, limit: Limit) -> Result<Answers, Error> {
    let next = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..writers {
        let (mut channel, next) = (channel.clone(), next.clone());
        workers.spawn(async move {
            let mut latencies = Vec::new();
            while start.elapsed() < limit.time {
                let key = format!("/registry/configmaps/default/w-{}", next.fetch_add(1, Ordering::Relaxed));
                let sent = Instant::now();
                put(&mut channel, &key).await?;
                latencies.push(sent.elapsed());
            }
            Ok::<_, Error>(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(ended) = workers.join_next().await {
        latencies.extend(ended??);
    }
    let elapsed = start.elapsed();
    latencies.sort_unstable();
    Ok(Answers { latencies, elapsed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_request_is_framed_and_measured() {
        let frame = put_request(b"k", &[7; 200]).unwrap();
        assert_eq!(frame[..5], [0, 0, 0, 0, 206]);
        assert_eq!(frame[5..8], [0x0A, 1, b'k']);
        assert_eq!(frame[8..11], [0x12, 0xC8, 0x01]);
        assert_eq!(frame.len(), 5 + 206);
    }
}
