//! Joining two connections whose bytes are not looked at.

use super::websocket::{self, Socket};
use futures::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

/// Bytes carried at a time in each direction: the size of the pieces that Kubernetes clients write.
const BUFFER: usize = 32 * 1024;

/// How long the other direction may go on once one has ended. SPDY knows no half-closed connection (its streams have
/// that), so this only lets the last bytes out; without it a vanished client would keep its command for ever.
const LINGER_TIMEOUT: Duration = Duration::from_secs(10);

/// Copies both ways until both have ended, or one and [`LINGER_TIMEOUT`].
pub(super) async fn splice<A, B>(client: A, server: B)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (client_read, client_write) = tokio::io::split(client);
    let (server_read, server_write) = tokio::io::split(server);
    let mut up = std::pin::pin!(pipe(client_read, server_write));
    let mut down = std::pin::pin!(pipe(server_read, client_write));
    let rest = tokio::select! {
        () = &mut up => tokio::time::timeout(LINGER_TIMEOUT, down).await,
        () = &mut down => tokio::time::timeout(LINGER_TIMEOUT, up).await,
    };
    if rest.is_err() {
        tracing::debug!("one direction of a stream outlived the other; closed");
    }
}

/// Copies until the end or an error, then closes the writing side.
async fn pipe(reader: impl AsyncRead, writer: impl AsyncWrite) {
    let mut reader = std::pin::pin!(tokio::io::BufReader::with_capacity(BUFFER, reader));
    let mut writer = std::pin::pin!(writer);
    if let Err(error) = tokio::io::copy_buf(&mut reader, &mut writer).await {
        tracing::debug!(%error, "stream to the container runtime");
    }
    if let Err(error) = writer.shutdown().await {
        tracing::debug!(%error, "closing a stream to the container runtime");
    }
}

/// Carries a byte stream within the binary messages of a WebSocket (KEP-4006). Ends when either side does.
pub(super) async fn tunnel<S, T>(client: Socket<S>, server: T)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    T: AsyncRead + AsyncWrite + Send,
{
    let (mut to_client, mut from_client) = client.split();
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let up = async {
        while let Some(bytes) = websocket::next(&mut from_client).await {
            to_server.write_all(&bytes).await?;
            to_server.flush().await?;
        }
        std::io::Result::Ok(())
    };
    let down = async {
        loop {
            let mut bytes = bytes::BytesMut::with_capacity(BUFFER);
            if from_server.read_buf(&mut bytes).await? == 0 {
                return std::io::Result::Ok(());
            }
            to_client.send(Message::Binary(bytes.freeze())).await.map_err(std::io::Error::other)?;
        }
    };
    let ended = tokio::select! { ended = up => ended, ended = down => ended };
    if let Err(error) = ended {
        tracing::debug!(%error, "tunnelled stream to the container runtime");
    }
    websocket::close(&mut to_client, &mut from_client, websocket::NORMAL).await;
}
