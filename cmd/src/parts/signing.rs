//! What the controllers sign with, from the files that upstream's flags name.

use super::args::SigningArgs;
use coracle_api::error::chain;
use coracle_apiserver::authn::claims::Reference;
use coracle_apiserver::authn::{Issuing, ServiceAccountTokens};
use coracle_apiserver::pki::{PkiError, ServiceAccountKey, SigningAuthority};
use coracle_controllers::CertificateSigner;
use coracle_controllers::certificates::KUBELET_SERVING;
use coracle_controllers::serviceaccount::LegacyTokens;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Authorities and the key of tokens; what is absent is not signed, and whoever asks for it waits.
#[derive(Clone, Default)]
pub struct Signing {
    pub certificates: Option<Arc<dyn CertificateSigner>>,
    pub tokens: Option<Arc<dyn LegacyTokens>>,
}

impl Signing {
    /// # Errors
    /// All mistakes, one a line.
    pub fn load(args: &SigningArgs) -> Result<Self, String> {
        let mut mistakes = Vec::new();
        let mut noted = |flag: &str, error: &PkiError| mistakes.push(format!("{flag}: {}", chain(error)));
        let mut authority = |flag: &str, certificate: &Option<PathBuf>, key: &Option<PathBuf>| {
            let (certificate, key) = certificate.as_ref().zip(key.as_ref())?;
            SigningAuthority::open(certificate, key).map_err(|error| noted(flag, &error)).ok()
        };
        let cluster = authority(
            "cluster-signing-cert-file",
            &args.cluster_signing_cert_file,
            &args.cluster_signing_key_file,
        );
        let serving = authority(
            "cluster-signing-kubelet-serving-cert-file",
            &args.cluster_signing_kubelet_serving_cert_file,
            &args.cluster_signing_kubelet_serving_key_file,
        );
        let key = args.service_account_private_key_file.as_deref().map(ServiceAccountKey::open);
        let key =
            key.and_then(|key| key.map_err(|error| noted("service-account-private-key-file", &error)).ok());
        if !mistakes.is_empty() {
            return Err(mistakes.join("\n"));
        }
        Ok(Self::of(cluster, serving, key.as_ref()))
    }

    fn of(
        cluster: Option<SigningAuthority>,
        serving: Option<SigningAuthority>,
        key: Option<&ServiceAccountKey>,
    ) -> Self {
        let any = cluster.is_some() || serving.is_some();
        let certificates =
            any.then(|| Arc::new(Authorities { cluster, serving }) as Arc<dyn CertificateSigner>);
        let tokens = key.map(|key| {
            let tokens = ServiceAccountTokens::with(key, Issuing::default());
            Arc::new(SecretTokens(Arc::new(tokens))) as Arc<dyn LegacyTokens>
        });
        Self { certificates, tokens }
    }
}

/// Signs the tokens that Secrets carry with the cluster's own key.
pub struct SecretTokens(pub Arc<ServiceAccountTokens>);

impl LegacyTokens for SecretTokens {
    fn sign(&self, account: &ServiceAccount, secret: &Secret) -> Result<String, String> {
        let reference = Reference {
            name: account.metadata.name.clone().unwrap_or_default(),
            uid: account.metadata.uid.clone().unwrap_or_default(),
        };
        let namespace = account.metadata.namespace.as_deref().unwrap_or_default();
        let secret = secret.metadata.name.as_deref().unwrap_or_default();
        self.0.issue_legacy(namespace, &reference, secret).map_err(|e| e.to_string())
    }
}

/// The signer `kubernetes.io/kubelet-serving` has an authority of its own, where one is named.
struct Authorities {
    cluster: Option<SigningAuthority>,
    serving: Option<SigningAuthority>,
}

impl CertificateSigner for Authorities {
    fn sign(
        &self,
        signer_name: &str,
        request_pem: &[u8],
        usages: &[&str],
        life: Duration,
    ) -> Result<String, String> {
        let own = self.serving.as_ref().filter(|_| signer_name == KUBELET_SERVING);
        let authority = own.or(self.cluster.as_ref());
        let authority =
            authority.ok_or_else(|| format!("no authority was named for the signer {signer_name}"))?;
        authority.sign_request(request_pem, usages, life, Timestamp::now()).map_err(|e| e.to_string())
    }
}
