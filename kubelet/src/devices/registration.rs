//! Plugins that say that they are there.

use super::book::Plugin;
use super::messages::{self as api, Empty, RegisterRequest};
use super::{CALL_TIMEOUT, Devices};
use crate::grpc::{self, Service, decode, unknown};
use crate::metrics::Metric;
use async_trait::async_trait;
use bytes::Bytes;
use coracle_api::validation::is_extended_resource;
use coracle_storage::csi::PluginClient;
use prost::Message;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use tokio::net::UnixListener;
use tonic::Status;

const SOCKET: &str = "kubelet.sock";

/// Makes the kubelet's socket. What sockets plugins had goes, as with upstream: those that look after theirs rather than
/// after the kubelet's make them anew and register.
pub fn listen(dir: &Path) -> io::Result<UnixListener> {
    std::fs::create_dir_all(dir)?;
    for entry in std::fs::read_dir(dir)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_socket()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    grpc::listen(&dir.join(SOCKET))
}

pub struct Registration(pub Arc<Devices>);

#[async_trait]
impl Service for Registration {
    async fn call(&self, path: &str, request: Bytes) -> Result<Vec<u8>, Status> {
        match path {
            api::REGISTER => {
                let request: RegisterRequest = decode(request)?;
                self.0.register_by_request(request).map_err(Status::unknown)?;
                Ok(Empty {}.encode_to_vec())
            }
            path => Err(unknown(path)),
        }
    }
}

impl Devices {
    /// Says why it does not take the plugin on, in upstream's words.
    fn register_by_request(self: &Arc<Self>, request: RegisterRequest) -> Result<(), String> {
        let RegisterRequest { version, endpoint, resource_name, options } = request;
        check(&resource_name, &[version])?;
        if endpoint.is_empty() || endpoint.contains('/') || endpoint == SOCKET {
            return Err(format!(
                "the endpoint {endpoint:?} is not the name of a socket beside the kubelet's"
            ));
        }
        let client = PluginClient::new(&self.dir.join(endpoint), CALL_TIMEOUT);
        self.take_on(&resource_name, client, options.unwrap_or_default());
        Ok(())
    }

    /// Takes on a plugin that offers itself by a socket of its own.
    pub async fn register(
        self: &Arc<Self>,
        name: &str,
        endpoint: &Path,
        versions: &[String],
    ) -> Result<(), String> {
        check(name, versions)?;
        let client = PluginClient::new(endpoint, CALL_TIMEOUT);
        let options = client.call::<_, api::Options>(api::GET_OPTIONS, Empty {}).await;
        self.take_on(name, client, options.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn take_on(self: &Arc<Self>, name: &str, client: PluginClient, options: api::Options) {
        let life = {
            let mut book = self.book.lock();
            book.lives += 1;
            let life = book.lives;
            let resource = book.resources.entry(name.to_owned()).or_default();
            resource.plugin = Some(Plugin { client: client.clone(), options, life });
            life
        };
        self.metrics.add(Metric::PluginRegistrations, &[name]);
        tracing::info!(resource = name, socket = %client.socket().display(), "device plugin registered");
        let follow = self.clone().follow(name.to_owned(), client.socket().to_owned(), life);
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(follow));
    }

    /// The socket by which the plugin offered itself is gone.
    pub async fn deregister(&self, name: &str, endpoint: &Path) {
        let life = {
            let book = self.book.lock();
            let plugin = book.resources.get(name).and_then(|resource| resource.plugin.as_ref());
            plugin.filter(|plugin| plugin.client.socket() == endpoint).map(|plugin| plugin.life)
        };
        if let Some(life) = life {
            self.lose(name, life).await;
        }
    }
}

fn check(name: &str, versions: &[String]) -> Result<(), String> {
    if !versions.iter().any(|version| version == api::VERSION) {
        let versions = versions.join(", ");
        return Err(format!(
            "requested API version {versions:?} is not supported by kubelet. Supported version is {:?}",
            api::VERSION
        ));
    }
    if !is_extended_resource(name) {
        return Err(format!("the ResourceName {name:?} is invalid"));
    }
    Ok(())
}
