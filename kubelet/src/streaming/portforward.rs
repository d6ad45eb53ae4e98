//! Port-forward for WebSocket clients of the protocol before tunnelling: for the i-th port, channel 2i carries data
//! and channel 2i+1 errors, both beginning with the port as 16 bits, low byte first.

use super::spdy::{self, Frame, Headers, Role, Sender, SpdyError};
use super::websocket::{self, Input, Output, Socket, Subprotocol};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite;

/// The SPDY streams of one forwarded port.
struct Port {
    number: u16,
    error: u32,
    data: u32,
}

/// Carries the ports until the runtime ended them all or the client goes.
pub(super) async fn bridge<S, T>(
    client: Socket<S>,
    protocol: Subprotocol,
    server: T,
    ports: &[u16],
) -> Result<(), SpdyError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut output, mut input) = client.split();
    let (sender, mut receiver) = spdy::session(server, Role::Client)?;
    let mut opened = Vec::with_capacity(ports.len());
    for (request, number) in ports.iter().enumerate() {
        opened.push(open(&sender, request, *number).await?);
    }
    if let Err(error) = greet(&mut output, protocol, &opened).await {
        tracing::debug!(%error, "WebSocket client");
        return Ok(());
    }
    let ended = tokio::select! {
        () = up(&mut input, protocol, &sender, &opened) => return Ok(()),
        ended = down(&mut receiver, &mut output, protocol, &opened) => ended,
    };
    websocket::close(&mut output, &mut input, websocket::NORMAL).await;
    ended
}

/// The error stream first, as upstream's client opens them; nothing is ever sent on it.
async fn open(sender: &Sender, request: usize, number: u16) -> Result<Port, SpdyError> {
    let (port, request) = (number.to_string(), request.to_string());
    let headers = |kind| Headers::new([("streamType", kind), ("port", &port), ("requestID", &request)]);
    let error = sender.open(headers("error")).await?;
    sender.finish(error).await?;
    let data = sender.open(headers("data")).await?;
    Ok(Port { number, error, data })
}

async fn greet<S>(
    output: &mut Output<S>,
    protocol: Subprotocol,
    ports: &[Port],
) -> Result<(), tungstenite::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    for port in ports {
        for id in [port.data, port.error] {
            let Some(channel) = channel_of(ports, id) else { continue };
            output.send(protocol.encode(channel, &port.number.to_le_bytes())).await?;
        }
    }
    Ok(())
}

/// The channel of a SPDY stream. The server accepts at most 127 ports, so that it fits.
fn channel_of(ports: &[Port], id: u32) -> Option<u8> {
    let at = ports.iter().position(|port| port.data == id || port.error == id)?;
    u8::try_from(2 * at + usize::from(ports[at].error == id)).ok()
}

async fn up<S>(input: &mut Input<S>, protocol: Subprotocol, sender: &Sender, ports: &[Port])
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = websocket::next(input).await {
        let Some((channel, payload)) = protocol.decode(message) else { continue };
        let Some(port) = ports.get(usize::from(channel / 2)).filter(|_| channel % 2 == 0) else { continue };
        if let Err(error) = sender.data(port.data, payload, false).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "data to the container runtime");
            return std::future::pending().await;
        }
    }
}

async fn down<S, R>(
    receiver: &mut spdy::Receiver<R>,
    output: &mut Output<S>,
    protocol: Subprotocol,
    ports: &[Port],
) -> Result<(), SpdyError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + Unpin,
{
    let mut open: Vec<u32> = ports.iter().flat_map(|port| [port.data, port.error]).collect();
    while !open.is_empty() {
        match receiver.next().await? {
            None => break,
            Some(Frame::Reset { id, .. }) => open.retain(|o| *o != id),
            Some(Frame::Data { id, bytes, fin }) => {
                if fin {
                    open.retain(|o| *o != id);
                }
                let Some(channel) = channel_of(ports, id).filter(|_| !bytes.is_empty()) else { continue };
                if output.send(protocol.encode(channel, &bytes)).await.is_err() {
                    return Ok(());
                }
            }
            Some(_) => {}
        }
    }
    Ok(())
}
