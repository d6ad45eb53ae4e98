//! TLS towards a pod, whose certificate a probe does not check: it asks whether something answers, not who.

use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls_pki_types::ServerName;
use std::io;
use std::sync::Arc;

/// For a connection to a server of this name.
pub fn of(host: &str) -> io::Result<(Arc<ClientConfig>, ServerName<'static>)> {
    let provider = Arc::new(ring::default_provider());
    let config = coracle_tls::unverified(&provider).map_err(io::Error::other)?;
    Ok((config, coracle_tls::outbound::server_name(host)?))
}
