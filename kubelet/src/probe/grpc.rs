//! gRPC's health check (grpc.health.v1.Health/Check), whose two messages have one field each.

use super::Outcome;
use bytes::{Buf, BufMut};
use std::time::Duration;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Endpoint;
use tonic::{Request, Status};

const SERVING: u64 = 1;
/// The probe's own timeout ends it earlier.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Encodes a service's name as HealthCheckRequest, decodes HealthCheckResponse's status.
#[derive(Clone, Copy, Default)]
struct HealthCodec;

impl Codec for HealthCodec {
    type Encode = String;
    type Decode = u64;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for HealthCodec {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, service: String, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        if service.is_empty() {
            return Ok(());
        }
        // Field 1, length-delimited; the length as a varint.
        out.put_u8(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            out.put_u8(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
            length >>= 7;
        }
        out.put_u8(u8::try_from(length).unwrap_or(0));
        out.put_slice(service.as_bytes());
        Ok(())
    }
}

impl Decoder for HealthCodec {
    type Item = u64;
    type Error = Status;

    fn decode(&mut self, input: &mut DecodeBuf<'_>) -> Result<Option<u64>, Status> {
        let mut status = 0;
        // Field 1, a varint below 128; anything else is no known status.
        if input.remaining() >= 2 && input.get_u8() == 0x08 {
            status = u64::from(input.get_u8());
        }
        input.advance(input.remaining());
        Ok(Some(status))
    }
}

pub async fn check(ip: &str, port: u16, service: &str) -> Outcome {
    match ask(ip, port, service).await {
        Ok(SERVING) => Outcome::Success,
        Ok(status) => {
            let word = match status {
                0 => "UNKNOWN",
                2 => "NOT_SERVING",
                _ => "SERVICE_UNKNOWN",
            };
            Outcome::Failure(format!("service unhealthy (responded with {word:?})"))
        }
        Err(message) => Outcome::Failure(message),
    }
}

async fn ask(ip: &str, port: u16, service: &str) -> Result<u64, String> {
    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    let address = format!("{host}:{port}");
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|e| e.to_string())?;
    let unreachable =
        |_| format!("timeout: failed to connect service {address:?} within 1s: context deadline exceeded");
    let channel = endpoint.connect_timeout(CONNECT_TIMEOUT).connect().await.map_err(unreachable)?;
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|e| e.to_string())?;
    let path = http::uri::PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    let answer = client.unary(Request::new(service.to_owned()), path, HealthCodec).await;
    answer.map(tonic::Response::into_inner).map_err(|status| match status.code() {
        tonic::Code::Unimplemented => {
            format!(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
                status.message()
            )
        }
        _ => format!("error: health rpc failed: {status}"),
    })
}
