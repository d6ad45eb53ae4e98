//! Certificates by way of the certificates API
//! (<https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/>).

use coracle_api::error::chain;
use coracle_client::FollowedObject;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use rcgen::{CertificateParams, DnType, KeyPair};
use std::time::Duration;

/// A request that is approved by itself is signed in milliseconds; one that waits for a person is given up, and is asked
/// for again with another key.
const ISSUED_TIMEOUT: Duration = Duration::from_secs(60);

/// What is asked for. Usages: a digital signature, and `purpose`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub signer: &'static str,
    pub common_name: String,
    pub organization: Option<&'static str>,
    /// DNS names and IP addresses.
    pub hosts: Vec<String>,
    pub purpose: &'static str,
}

/// The certificate's chain and its new key, both PEM.
pub async fn issue(client: &kube::Client, wanted: &Wanted) -> Result<(String, String), String> {
    let (request, key) = made(wanted).map_err(|e| chain(&e))?;
    let csr = CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("node-csr-".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.into_bytes()),
            signer_name: wanted.signer.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), wanted.purpose.to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let created = api.create(&PostParams::default(), &csr).await.map_err(|e| chain(&e))?;
    let name = created.metadata.name.unwrap_or_default();
    let issued = tokio::time::timeout(ISSUED_TIMEOUT, decided(client, &name)).await;
    let issued = issued.map_err(|_| format!("nobody approved the certificate request {name}"))??;
    Ok((issued, key))
}

/// As PEM, both.
fn made(wanted: &Wanted) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(wanted.hosts.clone())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let Some(organization) = wanted.organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name.push(DnType::CommonName, wanted.common_name.as_str());
    Ok((params.serialize_request(&key)?.pem()?, key.serialize_pem()))
}

async fn decided(client: &kube::Client, name: &str) -> Result<String, String> {
    let among = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let mut followed = FollowedObject::<CertificateSigningRequest>::new(client.clone(), among, name);
    loop {
        let Some(status) = followed.next().await.and_then(|csr| csr.status) else { continue };
        if let Some(certificate) = status.certificate {
            return String::from_utf8(certificate.0).map_err(|e| format!("certificate of {name}: {e}"));
        }
        let refused = status.conditions.iter().flatten().find(|c| matches!(&*c.type_, "Denied" | "Failed"));
        if let Some(condition) = refused {
            let message = condition.message.as_deref().unwrap_or_default();
            return Err(format!(
                "the certificate request {name} was {}: {message}",
                condition.type_.to_lowercase()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_says_what_is_wanted() {
        let wanted = Wanted {
            signer: "kubernetes.io/kubelet-serving",
            common_name: "system:node:n2".to_owned(),
            organization: Some("system:nodes"),
            hosts: vec!["n2".to_owned(), "192.0.2.2".to_owned()],
            purpose: "server auth",
        };
        let (pem, key) = made(&wanted).expect("a request");
        assert!(key.contains("PRIVATE KEY"));
        let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM");
        let request = x509_parser::certification_request::X509CertificationRequest::from_der(&block.contents);
        let (_, request) = request.expect("a request");
        let subject = request.certification_request_info.subject.to_string();
        assert!(subject.contains("O=system:nodes") && subject.contains("CN=system:node:n2"), "{subject}");
        assert!(request.verify_signature().is_ok());
        assert_eq!(request.requested_extensions().into_iter().flatten().count(), 1);
    }

    use x509_parser::prelude::FromDer;
}
