use super::dictionary::{DICTIONARY, DICTIONARY_ID};
use super::*;
use bytes::{Bytes, BytesMut};
use std::time::Duration;

fn decode_all(decoder: &mut Decoder, input: &mut BytesMut) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some(frame) = decoder.decode(input).unwrap() {
        frames.push(frame);
    }
    frames
}

#[test]
fn dictionary_is_the_protocols() {
    let (mut a, mut b) = (1u32, 0u32);
    for byte in DICTIONARY.iter() {
        a = (a + u32::from(*byte)) % 65521;
        b = (b + a) % 65521;
    }
    assert_eq!(DICTIONARY.len(), 1423);
    assert_eq!(b << 16 | a, DICTIONARY_ID);
}

#[test]
fn a_block_names_the_dictionary_and_later_ones_build_on_it() {
    let mut encoder = Encoder::new().unwrap();
    let mut out = BytesMut::new();
    let headers = Headers::new([("streamType", "stdin")]);
    for id in [1, 3, 5] {
        let frame = Frame::SynStream { id, headers: headers.clone(), fin: false, unidirectional: false };
        encoder.encode(&frame, &mut out).unwrap();
    }
    // zlib header with FDICT set, then the dictionary's Adler-32 (RFC 1950)
    assert_eq!(out[19] & 0x20, 0x20);
    assert_eq!(out[20..24], DICTIONARY_ID.to_be_bytes());
    let frames = decode_all(&mut Decoder::default(), &mut out);
    assert_eq!(frames.len(), 3);
    for frame in frames {
        let Frame::SynStream { headers, .. } = frame else { panic!("{frame:?}") };
        assert_eq!(headers.get("streamtype"), Some("stdin"));
    }
}

#[test]
fn every_frame_survives_any_cut() {
    let headers = Headers(vec![
        ("port".to_owned(), "80".to_owned()),
        ("requestid".to_owned(), "0".to_owned()),
        ("a".to_owned(), "1".to_owned()),
        ("a".to_owned(), "2".to_owned()),
    ]);
    let frames = vec![
        Frame::SynStream { id: 1, headers: headers.clone(), fin: false, unidirectional: true },
        Frame::SynReply { id: 1, headers: Headers::default(), fin: true },
        Frame::Headers { id: 1, headers, fin: false },
        Frame::Reset { id: 7, status: 5 },
        Frame::Settings,
        Frame::Ping { id: 2 },
        Frame::GoAway { last: 3, status: 0 },
        Frame::WindowUpdate { id: 3, delta: 77 },
        Frame::Data { id: 3, bytes: Bytes::new(), fin: true },
    ];
    let (mut encoder, mut wire) = (Encoder::new().unwrap(), BytesMut::new());
    for frame in &frames {
        encoder.encode(frame, &mut wire).unwrap();
    }
    for cut in 0..wire.len() {
        let mut decoder = Decoder::default();
        let mut input = BytesMut::from(&wire[..cut]);
        let mut got = decode_all(&mut decoder, &mut input);
        input.extend_from_slice(&wire[cut..]);
        got.extend(decode_all(&mut decoder, &mut input));
        assert_eq!(got, frames, "cut at {cut}");
    }
}

#[test]
fn a_block_that_inflates_without_end_is_refused() {
    let bomb = Headers(vec![("a".to_owned(), "x".repeat(65_000))]);
    let mut wire = BytesMut::new();
    Encoder::new().unwrap().encode(&Frame::SynReply { id: 1, headers: bomb, fin: false }, &mut wire).unwrap();
    assert!(wire.len() < 2000, "compresses well: {}", wire.len());
    assert!(Decoder::default().decode(&mut wire).unwrap().is_some(), "within the limit");

    let mut stream = flate2::Compress::new(flate2::Compression::fast(), true);
    let mut block = Vec::with_capacity(1 << 20);
    stream.compress_vec(&vec![0u8; 1 << 20], &mut block, flate2::FlushCompress::Sync).unwrap();
    let mut wire = BytesMut::new();
    wire.extend_from_slice(&[0x80, 3, 0, 2]);
    wire.extend_from_slice(&u32::try_from(block.len() + 4).unwrap().to_be_bytes());
    wire.extend_from_slice(&[0, 0, 0, 1]);
    wire.extend_from_slice(&block);
    assert!(matches!(Decoder::default().decode(&mut wire), Err(SpdyError::HeadersTooLarge(_))));
}

#[test]
fn oversized_control_frames_are_refused_before_they_are_buffered() {
    let mut wire = BytesMut::from(&[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff][..]);
    assert!(matches!(Decoder::default().decode(&mut wire), Err(SpdyError::FrameTooLarge(_))));
}

#[tokio::test]
async fn streams_carry_data_and_their_ends() {
    let (near, far) = tokio::io::duplex(64);
    let (client, mut from_server) = session(near, Role::Client).unwrap();
    let (server, mut from_client) = session(far, Role::Server).unwrap();
    let serve = tokio::spawn(async move {
        let Some(Frame::SynStream { id, headers, .. }) = from_client.next().await.unwrap() else { panic!() };
        assert_eq!(headers.get("streamtype"), Some("data"));
        server.accept(id).await.unwrap();
        loop {
            match from_client.next().await.unwrap() {
                Some(Frame::Data { bytes, fin, .. }) => {
                    server.data(id, bytes, fin).await.unwrap();
                    if fin {
                        return server.close().await.unwrap();
                    }
                }
                Some(Frame::WindowUpdate { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    });
    let sent = Bytes::from(vec![7u8; 100_000]);
    let id = client.open(Headers::new([("streamType", "data")])).await.unwrap();
    assert_eq!(id, 1);
    let sender = client.clone();
    let payload = sent.clone();
    let send = tokio::spawn(async move { sender.data(id, payload, true).await.unwrap() });
    let (mut got, mut finished) = (Vec::new(), false);
    while let Some(frame) = from_server.next().await.unwrap() {
        match frame {
            Frame::Data { bytes, fin, .. } => {
                got.extend_from_slice(&bytes);
                finished |= fin;
            }
            Frame::SynReply { .. } | Frame::GoAway { .. } | Frame::WindowUpdate { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(finished);
    assert_eq!(got, sent);
    send.await.unwrap();
    serve.await.unwrap();
}

#[tokio::test]
async fn pings_of_the_peer_are_answered_and_own_ones_are_not() {
    let (near, far) = tokio::io::duplex(1024);
    let (client, mut from_server) = session(near, Role::Client).unwrap();
    let (_server, mut from_client) = session(far, Role::Server).unwrap();
    client.ping(1).await.unwrap();
    assert_eq!(from_client.next().await.unwrap(), Some(Frame::Ping { id: 1 }));
    assert_eq!(from_server.next().await.unwrap(), Some(Frame::Ping { id: 1 }));
    let quiet = tokio::time::timeout(Duration::from_millis(20), from_client.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
}

/// The peer takes nothing more, yet what it sends is still received: replies must not wait for the sending half.
#[tokio::test]
async fn a_blocked_sender_does_not_block_the_receiver() {
    let (near, far) = tokio::io::duplex(256);
    let (client, mut from_server) = session(near, Role::Client).unwrap();
    let (server, _unread) = session(far, Role::Server).unwrap();
    let stuck = tokio::spawn(async move { client.data(1, Bytes::from(vec![0; 10_000]), false).await });
    let push = tokio::spawn(async move {
        for _ in 0..40 {
            server.data(1, Bytes::from(vec![1; 10_000]), false).await.unwrap();
            server.ping(2).await.unwrap();
        }
    });
    let mut bytes = 0;
    while bytes < 400_000 {
        if let Some(Frame::Data { bytes: piece, .. }) = from_server.next().await.unwrap() {
            bytes += piece.len();
        }
    }
    push.await.unwrap();
    assert!(!stuck.is_finished());
    stuck.abort();
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let mut input = BytesMut::from(&bytes[..]);
            let mut decoder = Decoder::default();
            while let Ok(Some(_)) = decoder.decode(&mut input) {}
        }

        #[test]
        fn any_control_payload_is_no_panic(
            kind in 0u16..12, flags in any::<u8>(), payload in proptest::collection::vec(any::<u8>(), 0..300)
        ) {
            let mut input = BytesMut::from(&[0x80, 3][..]);
            input.extend_from_slice(&kind.to_be_bytes());
            input.extend_from_slice(&(u32::from(flags) << 24 | u32::try_from(payload.len()).unwrap()).to_be_bytes());
            input.extend_from_slice(&payload);
            let mut decoder = Decoder::default();
            while let Ok(Some(_)) = decoder.decode(&mut input) {}
        }

        #[test]
        fn headers_and_data_round_trip(
            blocks in proptest::collection::vec(
                proptest::collection::vec(("[a-z]{1,12}", "[ -~]{0,60}"), 0..8), 1..5),
            data in proptest::collection::vec(any::<u8>(), 0..5000),
            chunk in 1usize..700,
        ) {
            let mut wire = BytesMut::new();
            let mut encoder = Encoder::new().unwrap();
            let blocks: Vec<Headers> = blocks.into_iter().map(|mut pairs| {
                pairs.sort();
                Headers(pairs)
            }).collect();
            for headers in &blocks {
                encoder.encode(&Frame::Headers { id: 1, headers: headers.clone(), fin: false }, &mut wire).unwrap();
            }
            encoder.encode(&Frame::Data { id: 1, bytes: data.clone().into(), fin: true }, &mut wire).unwrap();
            let (mut decoder, mut input) = (Decoder::default(), BytesMut::new());
            let (mut seen, mut got, mut finished) = (Vec::new(), Vec::new(), false);
            for piece in wire.chunks(chunk) {
                input.extend_from_slice(piece);
                for frame in decode_all(&mut decoder, &mut input) {
                    match frame {
                        Frame::Headers { headers, .. } => seen.push(headers),
                        Frame::Data { bytes, fin, .. } => { got.extend_from_slice(&bytes); finished |= fin }
                        other => panic!("{other:?}"),
                    }
                }
            }
            prop_assert_eq!(seen, blocks);
            prop_assert_eq!(got, data);
            prop_assert!(finished);
        }
    }
}
