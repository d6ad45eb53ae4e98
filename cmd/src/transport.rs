//! Clients over HTTPS.

use crate::certificates::Certificate;
use axum::http::Uri;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_api::error::chain;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::error::Error;
use std::io;

fn config(server: &Uri) -> kube::Config {
    crate::kubeconfig::patient(kube::Config::new(server.clone()))
}

fn client(config: kube::Config) -> Result<kube::Client, String> {
    kube::Client::try_from(config).map_err(|e| chain(&e))
}

/// Believes whoever answers, and says nothing secret: for what can be verified afterwards.
pub fn unverified(server: &Uri) -> Result<kube::Client, String> {
    let mut config = config(server);
    config.accept_invalid_certs = true;
    client(config)
}

fn trusting(server: &Uri, ca_pem: &str) -> Result<kube::Config, String> {
    let authorities = CertificateDer::pem_slice_iter(ca_pem.as_bytes());
    let ders: Result<Vec<Vec<u8>>, _> = authorities.map(|found| found.map(|der| der.to_vec())).collect();
    let ders = ders.map_err(|e| format!("the cluster's CA cannot be read: {e}"))?;
    let mut config = config(server);
    config.root_cert = Some(ders);
    Ok(config)
}

pub fn by_token(server: &Uri, ca_pem: &str, token: &str) -> Result<kube::Client, String> {
    let mut config = trusting(server, ca_pem)?;
    config.auth_info.token = Some(token.to_owned().into());
    client(config)
}

pub fn by_certificate(server: &Uri, ca_pem: &str, own: &Certificate) -> Result<kube::Client, String> {
    let mut config = trusting(server, ca_pem)?;
    config.auth_info.client_certificate_data = Some(STANDARD.encode(&own.chain_pem));
    config.auth_info.client_key_data = Some(STANDARD.encode(&own.key_pem).into());
    client(config)
}

/// Why a request failed, in words for whoever typed the command.
pub fn why(server: &Uri, error: &kube::Error) -> String {
    let text = match error {
        kube::Error::Api(status) if status.code == 401 => "it does not accept the credentials".to_owned(),
        kube::Error::Api(status) => status.message.clone(),
        other => chain(other),
    };
    format!("{}: {text}", server.to_string().trim_end_matches('/'))
}

/// Whether the server's certificate is not of the CA that is trusted, or not for its address.
pub fn is_distrust(error: &(dyn Error + 'static)) -> bool {
    let certificate = matches!(error.downcast_ref(), Some(rustls::Error::InvalidCertificate(_)));
    // Of what an error of the system carries, its source is only the next one.
    let carried = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    certificate || carried.is_some_and(|inner| is_distrust(inner)) || error.source().is_some_and(is_distrust)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_not_trusted_is_told_apart() {
        let of =
            |error: rustls::Error| kube::Error::Service(Box::new(io::Error::other(io::Error::other(error))));
        assert!(is_distrust(&of(rustls::CertificateError::UnknownIssuer.into())));
        assert!(!is_distrust(&of(rustls::Error::DecryptError)));
        assert!(!is_distrust(&kube::Error::Service(Box::new(io::Error::other("invalid peer certificate")))));
    }
}
