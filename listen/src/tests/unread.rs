//! Requests that are answered before their bodies are read.

use super::*;

/// Until this was read.
async fn read_until(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut got = Vec::new();
    while !got.ends_with(end) {
        assert!(stream.read_buf(&mut got).await.expect("a connection") > 0, "closed after {got:?}");
    }
    got
}

#[tokio::test]
async fn http1_goes_on_behind_a_body_that_nobody_wanted() {
    let (address, _) = server(Places::new(10, 10)).await;
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let length = 2 << 20;
    for _ in 0..2 {
        let head = format!("POST /text HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("sent");
        // More than the buffers on the way take, all of it before a look at the answer.
        stream.write_all(&vec![b'x'; length]).await.expect("sent");
        let answer = read_until(&mut stream, b"a text").await;
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    }
}

#[tokio::test]
async fn who_waits_to_be_asked_for_a_body_is_not_asked() {
    let (address, _) = server(Places::new(10, 10)).await;
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let head = "POST /text HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\nexpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("sent");
    let answer = read_until(&mut stream, b"a text").await;
    assert!(
        answer.starts_with(b"HTTP/1.1 200") && says_close(&answer),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    until_end(&mut stream).await;
}

fn says_close(answer: &[u8]) -> bool {
    String::from_utf8_lossy(answer).contains("connection: close\r\n")
}

#[tokio::test]
async fn a_connection_that_ends_behind_an_answer_says_so() {
    let (address, _) = server_with(Places::new(10, 10), Limits::default()).await;
    let head = b"POST /text HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n";
    // Late, but not too late: the connection stays.
    let mut stream = TcpStream::connect(address).await.expect("connected");
    for _ in 0..2 {
        stream.write_all(head).await.expect("sent");
        tokio::time::sleep(Duration::from_millis(50)).await;
        stream.write_all(b"body").await.expect("sent");
        let answer = read_until(&mut stream, b"a text").await;
        assert!(!says_close(&answer), "{}", String::from_utf8_lossy(&answer));
    }
    // Never: who sent half of it gets the whole answer, and knows that it was the last one.
    stream.write_all(head).await.expect("sent");
    stream.write_all(b"bo").await.expect("sent");
    let answer = read_until(&mut stream, b"a text").await;
    assert!(says_close(&answer), "{}", String::from_utf8_lossy(&answer));
    until_end(&mut stream).await;
}

#[tokio::test]
async fn who_sends_more_than_is_read_away_has_the_answer_all_the_same() {
    let (address, _) = server_with(Places::new(10, 10), Limits::default()).await;
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let length = 24 << 20;
    let head = format!("POST /text HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("sent");
    // All of it before a look at the answer, which is there long before.
    stream.write_all(&vec![b'x'; length]).await.expect("sent");
    let answer = read_until(&mut stream, b"a text").await;
    assert!(says_close(&answer), "{}", String::from_utf8_lossy(&answer));
    until_end(&mut stream).await;
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Kind and flags of the next frame of a stream.
async fn next(stream: &mut TcpStream) -> (u8, u8) {
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.expect("a frame");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.expect("its payload");
        if head[8] != 0 {
            return (head[3], head[4]);
        }
    }
}

#[tokio::test]
async fn http2_does_not_reset_who_still_sends() {
    let (address, _) = server_with(Places::new(10, 10), Limits::default()).await;
    let mut stream = TcpStream::connect(address).await.expect("connected");
    // POST http /text, as literals that are not kept.
    let block = [b"\x83\x86\x04\x05/text\x01\x01a".as_slice()].concat();
    let begun = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(),
        &frame(4, 0, 0, &[]),
        &frame(HEADERS, 4, 1, &block),
        &frame(DATA, 0, 1, b"so far"),
    ];
    stream.write_all(&begun.concat()).await.expect("sent");
    // The answer is there, and has no end before the request has its own.
    assert_eq!(next(&mut stream).await.0, HEADERS);
    assert_eq!(next(&mut stream).await, (DATA, 0));
    stream.write_all(&frame(DATA, END_STREAM, 1, b"the rest")).await.expect("sent");
    assert_eq!(next(&mut stream).await, (DATA, END_STREAM));
    // Who does not end is not waited for.
    stream.write_all(&frame(HEADERS, 4, 3, &block)).await.expect("sent");
    let frames = [next(&mut stream).await.0, next(&mut stream).await.0];
    assert_eq!(frames, [HEADERS, DATA]);
    assert_eq!(next(&mut stream).await, (DATA, END_STREAM));
    assert_eq!(next(&mut stream).await.0, RST_STREAM);
}
