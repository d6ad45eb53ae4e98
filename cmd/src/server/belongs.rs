//! Whether what a shared store holds is this server's cluster: another one's objects would be taken over, its authorities
//! replaced, and its nodes lost.

use coracle_api::error::chain;
use coracle_apiserver::pki::Pki;
use coracle_apiserver::store::Store;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Here every API server, upstream's too, publishes whom it believes.
const PUBLISHED: &str = "configmaps./kube-system/extension-apiserver-authentication";
/// Between two looks.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Returns when the store is of a cluster with this server's authority, or empty and this server joins nobody; until then it
/// says what is wrong.
pub async fn wait(store: &Arc<dyn Store>, pki: &Pki, joins: bool) {
    loop {
        match look(store, &pki.ca_pem(), joins).await {
            Ok(()) => return,
            Err(why) => tracing::warn!(why, "this server does not take part, and looks again"),
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

async fn look(store: &Arc<dyn Store>, own: &str, joins: bool) -> Result<(), String> {
    store.sync().await.map_err(|e| chain(&e))?;
    let found = store.get(PUBLISHED).await.map_err(|e| chain(&e))?;
    judge(found.map(|found| found.value.bytes()).as_deref(), own, joins)
}

fn judge(published: Option<&[u8]>, own: &str, joins: bool) -> Result<(), String> {
    let Some(published) = published else {
        let elsewhere = "etcd holds no cluster under this prefix: the server that this one joins keeps its objects elsewhere, \
                         and coracle migrate moves those of a box alone";
        return if joins { Err(elsewhere.to_owned()) } else { Ok(()) };
    };
    let map: Value = serde_json::from_slice(published)
        .map_err(|e| format!("the store's {PUBLISHED} cannot be read: {e}"))?;
    let theirs = certificates(map["data"]["client-ca-file"].as_str().unwrap_or_default());
    let own = certificates(own);
    if theirs.is_empty() || theirs.iter().any(|certificate| own.contains(certificate)) {
        return Ok(());
    }
    Err("etcd holds another cluster under this prefix, with other authorities than those in this server's pki: \
         coracle server --join hands them over, or --etcd-prefix keeps the clusters apart"
        .to_owned())
}

fn certificates(bundle: &str) -> Vec<Vec<u8>> {
    CertificateDer::pem_slice_iter(bundle.as_bytes()).flatten().map(|der| der.to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> String {
        rcgen::generate_simple_self_signed(vec!["ca".to_owned()]).expect("a certificate").cert.pem()
    }

    #[test]
    fn a_cluster_is_known_by_its_authorities() {
        let (own, other) = (certificate(), certificate());
        let published = |bundle: &str| {
            serde_json::json!({ "data": { "client-ca-file": bundle } }).to_string().into_bytes()
        };
        assert_eq!(judge(None, &own, false), Ok(()));
        assert_eq!(judge(Some(b"{}"), &own, true), Ok(()));
        assert_eq!(judge(Some(&published(&own)), &own, true), Ok(()));
        assert_eq!(
            judge(Some(&published(&format!("{other}{own}"))), &own, true),
            Ok(()),
            "one is being replaced"
        );
        let why = judge(Some(&published(&other)), &own, false).expect_err("another cluster");
        assert!(why.contains("--join"), "{why}");
        assert!(judge(None, &own, true).expect_err("nobody is there").contains("no cluster"));
        assert!(judge(Some(b"nonsense"), &own, false).is_err());
    }
}
