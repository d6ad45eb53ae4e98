//! The administrator's kubeconfig, as
//! <https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/> describes the format.

use crate::{Leaf, Pki, PkiError, write_private};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::Path;

/// Name of the cluster and of the user entry in every kubeconfig that Coracle writes; also how it knows its own file.
pub const CLUSTER_NAME: &str = "coracle";

/// What became of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    New,
    /// It was ours and is up to date.
    Unchanged,
    Replaced,
    /// It belongs to somebody else and was left alone.
    Foreign,
}

/// YAML for the bearer of a client certificate (PEM). `server` is a URL such as `https://127.0.0.1:6443`.
pub fn render(server: &str, ca_pem: &str, user: &str, cert_pem: &str, key_pem: &str) -> String {
    // Hand-laid, because the order of the keys is what people expect to read; every value is JSON-quoted, which YAML
    // reads as it is.
    let quote = |text: &str| Value::from(text).to_string();
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: {CLUSTER_NAME}\n\
         \x20 cluster:\n\
         \x20   server: {}\n\
         \x20   certificate-authority-data: {}\n\
         contexts:\n\
         - name: default\n\
         \x20 context:\n\
         \x20   cluster: {CLUSTER_NAME}\n\
         \x20   user: {}\n\
         current-context: default\n\
         preferences: {{}}\n\
         users:\n\
         - name: {}\n\
         \x20 user:\n\
         \x20   client-certificate-data: {}\n\
         \x20   client-key-data: {}\n",
        quote(server),
        STANDARD.encode(ca_pem),
        quote(user),
        quote(user),
        STANDARD.encode(cert_pem),
        STANDARD.encode(key_pem),
    )
}

/// The administrator's kubeconfig with the certificate that is valid now.
pub fn admin(pki: &Pki, server: &str) -> String {
    let (cert, key) = pki.leaf_pem(Leaf::Admin);
    render(server, &pki.ca_pem(), "kubernetes-admin", &cert, &key)
}

/// Writes [`admin`] to `path`, mode 0600. A file whose only cluster is not called `coracle` is somebody else's and stays.
pub fn write_admin(pki: &Pki, server: &str, path: &Path) -> Result<Written, PkiError> {
    let wanted = admin(pki, server);
    let present = match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(source) => return Err(PkiError::Read { path: path.to_owned(), source }),
    };
    let outcome = match present {
        None => Written::New,
        Some(text) if text == wanted => return Ok(Written::Unchanged),
        Some(text) if is_ours(&text) => Written::Replaced,
        Some(_) => return Ok(Written::Foreign),
    };
    write_private(path, wanted)?;
    Ok(outcome)
}

fn is_ours(text: &str) -> bool {
    let config: Value = serde_saphyr::from_str(text).unwrap_or_else(|_| json!({}));
    match config["clusters"].as_array().map(Vec::as_slice) {
        Some([only]) => only["name"] == CLUSTER_NAME,
        _ => text.trim().is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn writes_and_keeps() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::ensure(&dir.path().join("pki"), crate::PkiOptions::default()).unwrap();
        let path = dir.path().join("etc/admin.conf");
        let write = |server: &str| write_admin(&pki, server, &path).unwrap();
        assert_eq!(write("https://127.0.0.1:6443"), Written::New);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(write("https://127.0.0.1:6443"), Written::Unchanged);
        assert_eq!(write("https://127.0.0.1:7443"), Written::Replaced);
        let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(config["current-context"], "default");
        assert_eq!(config["clusters"][0]["cluster"]["server"], "https://127.0.0.1:7443");
        let ca = config["clusters"][0]["cluster"]["certificate-authority-data"].as_str().unwrap();
        assert_eq!(STANDARD.decode(ca).unwrap(), pki.ca_pem().as_bytes());
    }

    #[test]
    fn leaves_others_alone() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::ensure(&dir.path().join("pki"), crate::PkiOptions::default()).unwrap();
        for foreign in [
            "apiVersion: v1\nkind: Config\nclusters:\n- name: work\n  cluster: {}\n",
            "clusters:\n- name: coracle\n- name: work\n",
            "not: [yaml",
        ] {
            let path = dir.path().join("config");
            std::fs::write(&path, foreign).unwrap();
            assert_eq!(write_admin(&pki, "https://x:1", &path).unwrap(), Written::Foreign, "{foreign}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), foreign);
        }
    }
}
