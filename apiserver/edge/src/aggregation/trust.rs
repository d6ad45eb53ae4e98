//! Where aggregated servers learn whom to trust: the ConfigMap `extension-apiserver-authentication`.

use super::identity::FrontProxy;
use coracle_access::authn::PROXY_NAMES;
use coracle_api::Object;
use serde_json::{Value, json};

pub const NAMESPACE: &str = "kube-system";
pub const NAME: &str = "extension-apiserver-authentication";

/// The entries that are this server's to keep.
fn data(identity: &FrontProxy) -> Value {
    json!({
        "client-ca-file": identity.client_ca_pem(),
        "requestheader-allowed-names": json!(PROXY_NAMES).to_string(),
        "requestheader-client-ca-file": identity.own_ca_pem(),
        "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]",
        "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]",
    })
}

/// The ConfigMap as it must be, if it is not. Entries of others stay.
pub fn mended(present: Option<&Object>, identity: &FrontProxy) -> Option<Object> {
    let wanted = data(identity);
    let Some(present) = present else {
        return Some(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": NAME, "namespace": NAMESPACE },
            "data": wanted,
        }));
    };
    let mut mended = present.clone();
    if !mended["data"].is_object() {
        mended["data"] = json!({});
    }
    for (key, value) in wanted.as_object().into_iter().flatten() {
        mended["data"][key] = value.clone();
    }
    (mended != *present).then_some(mended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_pki::{Pki, PkiOptions};

    #[test]
    fn entries_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::ensure(dir.path(), PkiOptions::default()).unwrap();
        let identity = FrontProxy::new(pki.clone());
        let made = mended(None, &identity).unwrap();
        assert_eq!(made["data"]["requestheader-client-ca-file"], pki.front_proxy_ca_pem());
        assert_eq!(made["data"]["requestheader-allowed-names"], "[\"front-proxy-client\"]");
        assert_eq!(mended(Some(&made), &identity), None);
        let mut changed = made.clone();
        changed["data"]["client-ca-file"] = "other".into();
        changed["data"]["theirs"] = "stays".into();
        let back = mended(Some(&changed), &identity).unwrap();
        assert_eq!(
            (&back["data"]["client-ca-file"], &back["data"]["theirs"]),
            (&made["data"]["client-ca-file"], &json!("stays"))
        );
        changed["data"] = Value::Null;
        assert_eq!(mended(Some(&changed), &identity), Some(made));
    }
}
