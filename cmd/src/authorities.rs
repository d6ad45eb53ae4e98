//! Which authorities of the cluster a node knows, as its Node says it: the replacement of an authority waits for that.
//!
//! An authority is known by its common name; those that came later bear the second of their making behind an `@`.

use k8s_openapi::api::core::v1::Node;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

/// The names of the authorities that a node trusts, with commas.
pub const TRUSTED: &str = "coracle.io/trusted-authorities";
/// The name of the authority that signed the certificate of its kubelet.
pub const ISSUER: &str = "coracle.io/certificate-authority";

/// What a node says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holdings {
    pub trusted: Vec<String>,
    pub issuer: String,
}

impl Holdings {
    pub fn trusts(&self, authority: Option<&String>) -> bool {
        authority.is_some_and(|authority| self.trusted.contains(authority))
    }

    pub fn is_of(&self, authority: Option<&String>) -> bool {
        authority == Some(&self.issuer)
    }
}

/// `None` of kubelets that do not tell.
pub fn held_by(node: &Node) -> Option<Holdings> {
    let said = |key: &str| node.metadata.annotations.as_ref()?.get(key).cloned();
    let trusted = said(TRUSTED)?.split(',').map(str::to_owned).collect();
    Some(Holdings { trusted, issuer: said(ISSUER)? })
}

/// The common names of all certificates of a bundle.
pub fn names(bundle: &str) -> Result<Vec<String>, String> {
    CertificateDer::pem_slice_iter(bundle.as_bytes())
        .map(|der| {
            let der = der.map_err(|e| format!("the cluster's CA cannot be read: {e}"))?;
            let (_, parsed) = X509Certificate::from_der(&der).map_err(|e| e.to_string())?;
            Ok(common_name(parsed.subject()))
        })
        .collect()
}

pub fn common_name(name: &X509Name<'_>) -> String {
    let first = name.iter_common_name().next().and_then(|name| name.as_str().ok());
    first.unwrap_or_default().to_owned()
}

/// The second at which an authority of this name was made; 0 for the first ones.
pub fn generation(name: &str) -> i64 {
    name.split_once('@').and_then(|(_, at)| at.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn nodes_tell_by_annotations() {
        let mut node = Node::default();
        assert_eq!(held_by(&node), None);
        let said = [(TRUSTED, "kubernetes-ca,kubernetes-ca@7"), (ISSUER, "kubernetes-ca")];
        let said = said.map(|(key, value)| (key.to_owned(), value.to_owned()));
        node.metadata.annotations = Some(BTreeMap::from(said));
        let held = held_by(&node).expect("it tells");
        let (old, new) = ("kubernetes-ca".to_owned(), "kubernetes-ca@7".to_owned());
        assert!(held.trusts(Some(&new)) && held.is_of(Some(&old)) && !held.is_of(Some(&new)));
        assert!(!held.trusts(None) && !held.is_of(None));
        assert_eq!((generation(&old), generation(&new), generation("a@b")), (0, 7, 0));
    }
}
