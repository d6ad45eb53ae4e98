//! Connections that cost much and ask little.

use super::Error;
use super::wire::{Http1, Target, is_closed};
use futures::StreamExt;
use futures::stream::{self, FuturesUnordered};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Opened at a time: as many as a backlog takes.
const AT_ONCE: usize = 64;

/// Connections on which nothing is ever said.
pub async fn silent(target: &Target, count: usize) -> Result<(String, Vec<TcpStream>), Error> {
    let opened = stream::iter(0..count).map(|_| target.tcp()).buffer_unordered(AT_ONCE);
    let open: Vec<TcpStream> = opened.filter_map(|stream| async move { stream.ok() }).collect().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok((format!("{} opened", open.len()), open))
}

/// Connections on which nothing is said after the TLS handshake.
pub async fn idle(target: &Target, count: usize) -> Result<(String, Vec<Http1>), Error> {
    let opened = stream::iter(0..count).map(|_| target.http1()).buffer_unordered(AT_ONCE);
    let open: Vec<Http1> = opened.filter_map(|stream| async move { stream.ok() }).collect().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok((format!("{} opened", open.len()), open))
}

/// Whole TLS handshakes, one after the other on many connections, for so long.
pub async fn handshakes(target: &Target, time: Duration) -> Result<(String, ()), Error> {
    let began = Instant::now();
    let one = || async {
        let mut made = 0;
        while began.elapsed() < time {
            made += usize::from(target.http1().await.is_ok());
        }
        made
    };
    let made: usize =
        (0..AT_ONCE).map(|_| one()).collect::<FuturesUnordered<_>>().collect::<Vec<_>>().await.iter().sum();
    Ok((format!("{made} handshakes"), ()))
}

/// Heads of requests that come a byte at a time. Returns how many connections the server ended within `time`.
pub async fn slow_heads(target: &Target, count: usize, time: Duration) -> Result<(String, usize), Error> {
    let slow = |n: usize| async move {
        let Ok(mut connection) = target.http1().await else { return true };
        let head = connection.head("GET", "/version", &format!("x-slow: {n}\r\n"));
        let began = Instant::now();
        for byte in head.as_bytes().iter().cycle().skip(1).take_while(|_| began.elapsed() < time) {
            let byte = if *byte == b'\r' || *byte == b'\n' { b'x' } else { *byte };
            if connection.stream.write_all(&[byte]).await.is_err() {
                return true;
            }
            if is_closed(&mut connection.stream, Duration::from_millis(500)).await {
                return true;
            }
        }
        false
    };
    let ended =
        stream::iter(0..count).map(slow).buffer_unordered(count).filter(|e| std::future::ready(*e)).count();
    let ended = ended.await;
    Ok((format!("{ended} of {count} ended"), ended))
}

/// Writes whose body never comes on, `count` at once; how many were answered with each status.
pub async fn slow_bodies(
    target: &Target,
    namespace: &str,
    count: usize,
) -> Result<(String, Vec<(u16, usize)>), Error> {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let slow = |_| async {
        let mut connection = target.http1().await.ok()?;
        let more = "content-length: 100000\r\ncontent-type: application/json\r\n";
        let head = connection.head("POST", &path, more);
        connection.stream.write_all(head.as_bytes()).await.ok()?;
        connection.stream.write_all(b"{\"kind\":").await.ok()?;
        connection.stream.flush().await.ok()?;
        Some(connection.answer().await.ok()?.0)
    };
    let answers: Vec<Option<u16>> = stream::iter(0..count).map(slow).buffer_unordered(count).collect().await;
    let mut counted: Vec<(u16, usize)> = Vec::new();
    for status in answers.into_iter().map(Option::unwrap_or_default) {
        match counted.iter_mut().find(|(known, _)| *known == status) {
            Some((_, times)) => *times += 1,
            None => counted.push((status, 1)),
        }
    }
    let text: Vec<String> = counted.iter().map(|(status, times)| format!("{times} times {status}")).collect();
    Ok((text.join(", "), counted))
}
