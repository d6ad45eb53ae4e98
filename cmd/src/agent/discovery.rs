//! Whom to trust: `cluster-info`, signed with the token's secret
//! (<https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/#configmap-signing>).

use crate::join::{Pin, Token};
use crate::kubeconfig;
use crate::transport;
use axum::http::Uri;
use coracle_controllers::bootstrap_tokens::signature;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use std::time::Duration;
use tokio::time::Instant;

/// How long the signature of a token that was made a moment ago may take, and how often it is looked for.
const SIGNED_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// The cluster's CA (PEM), which the holder of the token's secret vouches for; and its pin, if there are any, for it.
pub async fn authority(server: &Uri, token: &Token, pins: &[Pin]) -> Result<String, String> {
    let maps: Api<ConfigMap> = Api::namespaced(transport::unverified(server)?, "kube-public");
    let until = Instant::now() + SIGNED_TIMEOUT;
    loop {
        let map = maps.get("cluster-info").await.map_err(|e| unavailable(server, &e))?;
        match verified(&map, token) {
            Err(Unverified::NotSigned) if Instant::now() < until => tokio::time::sleep(RETRY_INTERVAL).await,
            Err(why) => return Err(why.words(server, token)),
            Ok(info) => return pinned(kubeconfig::authority(kubeconfig::public_cluster(info)?)?, pins),
        }
    }
}

fn unavailable(server: &Uri, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => format!(
            "{}: it keeps the ConfigMap kube-public/cluster-info from strangers, which machines join by (--anonymous-auth=false?)",
            server.to_string().trim_end_matches('/')
        ),
        other => transport::why(server, other),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Unverified {
    NotSigned,
    Forged,
}

impl Unverified {
    fn words(&self, server: &Uri, token: &Token) -> String {
        let (server, id) = (server.to_string(), &token.id);
        let server = server.trim_end_matches('/');
        match self {
            Self::NotSigned => format!(
                "{server}: it has no token with the id \"{id}\" for joining, or no longer: coracle token create makes one"
            ),
            Self::Forged => format!(
                "{server}: its cluster-info is not signed with the secret of the token \"{id}\": the token is wrong, or this is not the server"
            ),
        }
    }
}

/// The kubeconfig in the map, if the token's secret signed it.
fn verified<'m>(map: &'m ConfigMap, token: &Token) -> Result<&'m str, Unverified> {
    let entry = |key: &str| map.data.as_ref().and_then(|data| data.get(key)).map(String::as_str);
    let kubeconfig = entry("kubeconfig").unwrap_or_default();
    let found = entry(&format!("jws-kubeconfig-{}", token.id)).ok_or(Unverified::NotSigned)?;
    if found == signature(kubeconfig, &token.id, &token.secret) {
        Ok(kubeconfig)
    } else {
        Err(Unverified::Forged)
    }
}

/// Of the bundle only what is pinned is trusted: whoever vouches for one of its certificates has not vouched for the
/// others.
fn pinned(ca_pem: String, pins: &[Pin]) -> Result<String, String> {
    if pins.is_empty() {
        return Ok(ca_pem);
    }
    let (mut trusted, mut others) = (String::new(), Vec::new());
    for pem in certificates(&ca_pem) {
        match Pin::of(pem)? {
            pin if pins.contains(&pin) => trusted.push_str(pem),
            other => others.push(other.to_string()),
        }
    }
    if !trusted.is_empty() {
        return Ok(trusted);
    }
    let others = if others.is_empty() { "none".to_owned() } else { others.join(" ") };
    Err(format!(
        "the cluster's CA has the hash {others}, which --discovery-token-ca-cert-hash does not allow"
    ))
}

/// Each block with its end.
fn certificates(bundle: &str) -> impl Iterator<Item = &str> {
    bundle
        .split_inclusive("-----END CERTIFICATE-----\n")
        .filter(|block| block.contains("-----BEGIN CERTIFICATE-----"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn token(text: &str) -> Token {
        Token::parse(text).expect("a token")
    }

    #[test]
    fn only_the_tokens_own_signature_counts() {
        let mut map = ConfigMap::default();
        let secret = token("abcdef.0123456789abcdef");
        let data = |signed: &str| {
            BTreeMap::from([
                ("kubeconfig".to_owned(), "text".to_owned()),
                ("jws-kubeconfig-abcdef".to_owned(), signed.to_owned()),
            ])
        };
        assert_eq!(verified(&map, &secret), Err(Unverified::NotSigned));
        map.data = Some(data(&signature("text", "abcdef", "0123456789abcdef")));
        assert_eq!(verified(&map, &secret), Ok("text"));
        assert_eq!(verified(&map, &token("abcdef.0000000000000000")), Err(Unverified::Forged));
        assert_eq!(verified(&map, &token("bbbbbb.0123456789abcdef")), Err(Unverified::NotSigned));
        map.data = Some(data(&signature("other", "abcdef", "0123456789abcdef")));
        assert_eq!(verified(&map, &secret), Err(Unverified::Forged));
    }

    #[test]
    fn a_pin_is_of_the_public_key() {
        let made = rcgen::generate_simple_self_signed(vec!["ca".to_owned()]).expect("a certificate");
        let other = rcgen::generate_simple_self_signed(vec!["ca".to_owned()]).expect("a certificate");
        let (pem, pin) = (made.cert.pem(), Pin::of(&made.cert.pem()).expect("a pin"));
        let foreign = Pin::of(&other.cert.pem()).expect("a pin");
        assert!(
            pinned(pem.clone(), &[]).is_ok() && pinned(pem.clone(), &[foreign.clone(), pin.clone()]).is_ok()
        );
        let why = pinned(pem.clone(), std::slice::from_ref(&foreign)).expect_err("another CA");
        assert!(why.contains(&pin.to_string()), "{why}");
        // Somebody who may write the bundle puts an authority of theirs beside the pinned one.
        for bundle in [format!("{pem}{}", other.cert.pem()), format!("{}{pem}", other.cert.pem())] {
            assert_eq!(pinned(bundle.clone(), std::slice::from_ref(&pin)), Ok(pem.clone()));
            assert_eq!(pinned(bundle.clone(), std::slice::from_ref(&foreign)), Ok(other.cert.pem()));
            assert_eq!(pinned(bundle.clone(), &[]), Ok(bundle));
        }
    }
}
