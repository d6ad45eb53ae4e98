//! What the API server is called, as far as whoever is not in its process can tell: by the certificate that it shows.

use coracle_api::certificate::{Holder, Name};
use coracle_api::error::chain;
use coracle_tls::outbound;
use kube::client::ConfigExt;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// For one connection and its handshake.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Between attempts.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Its names and addresses; asks until it is answered.
pub async fn of(config: &kube::Config) -> BTreeSet<String> {
    loop {
        match tokio::time::timeout(WAIT_TIMEOUT, shown(config)).await {
            Ok(Ok(names)) => return names,
            Ok(Err(why)) => tracing::warn!(why, "the API server's names cannot be read, trying again"),
            Err(_) => tracing::warn!("the API server's names cannot be read, trying again: no answer"),
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

async fn shown(config: &kube::Config) -> Result<BTreeSet<String>, String> {
    let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let mut names = BTreeSet::from([host.clone()]);
    if config.cluster_url.scheme_str() == Some("http") {
        return Ok(names);
    }
    let tls = config.rustls_client_config().map_err(|e| chain(&e))?;
    let stream = outbound::dial((host.as_str(), config.cluster_url.port_u16().unwrap_or(443))).await;
    let wanted = outbound::server_name(config.tls_server_name.as_deref().unwrap_or(&host));
    let wanted = wanted.map_err(|e| e.to_string())?;
    let connected = outbound::encrypt(Arc::new(tls), wanted, stream.map_err(|e| chain(&e))?).await;
    let connected = connected.map_err(|e| chain(&e))?;
    let own = connected.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let holder = Holder::of_certificate(own.ok_or("it shows no certificate")?).map_err(|e| e.to_string())?;
    names.extend(holder.names.iter().filter_map(|name| match name {
        Name::Dns(name) => Some(name.clone()),
        Name::Ip(ip) => Some(ip.to_string()),
        _ => None,
    }));
    Ok(names)
}
