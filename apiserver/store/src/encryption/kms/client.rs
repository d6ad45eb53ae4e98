//! A KMS plugin over its unix socket. The channel connects lazily, and again when the plugin comes back.

use super::KmsError;
use super::proto::{
    DecryptRequest, DecryptResponse, EncryptRequest, EncryptResponse, StatusRequest, StatusResponse,
};
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::Request;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic_prost::ProstCodec;

/// Largest answer taken, in bytes: upstream takes 1 KiB of ciphertext and 32 KiB of annotations.
const MAX_MESSAGE: usize = 64 << 10;

#[derive(Clone)]
pub(super) struct Client {
    channel: Channel,
    /// For each call.
    timeout: Duration,
}

impl Client {
    /// Within a runtime; nothing is connected yet.
    pub fn new(socket: PathBuf, timeout: Duration) -> Self {
        let connector = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://kms.invalid").connect_timeout(timeout);
        Self { channel: endpoint.connect_with_connector_lazy(connector), timeout }
    }

    pub async fn status(&self) -> Result<StatusResponse, KmsError> {
        self.call("Status", "/v2.KeyManagementService/Status", StatusRequest {}).await
    }

    pub async fn encrypt(&self, plaintext: Vec<u8>) -> Result<EncryptResponse, KmsError> {
        let uid = uuid::Uuid::new_v4().to_string();
        self.call("Encrypt", "/v2.KeyManagementService/Encrypt", EncryptRequest { plaintext, uid }).await
    }

    pub async fn decrypt(&self, request: DecryptRequest) -> Result<DecryptResponse, KmsError> {
        self.call("Decrypt", "/v2.KeyManagementService/Decrypt", request).await
    }

    async fn call<Q, A>(&self, method: &'static str, path: &'static str, request: Q) -> Result<A, KmsError>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut client =
            tonic::client::Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE);
        let call = async {
            client.ready().await.map_err(|e| tonic::Status::unavailable(e.to_string()))?;
            let codec = ProstCodec::<Q, A>::default();
            client.unary(Request::new(request), PathAndQuery::from_static(path), codec).await
        };
        match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(KmsError::Failed { method, why: told(&status) }),
            Err(_) => Err(KmsError::Timeout { method, limit: self.timeout }),
        }
    }
}

/// The innermost cause says that nobody listens; what is around it says nothing.
fn told(status: &tonic::Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        text = error.to_string();
        source = error.source();
    }
    format!("{:?}: {text}", status.code())
}
