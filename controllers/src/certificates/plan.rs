//! What is approved, signed and deleted, decided from one request.

use super::request::Wanted;
use super::{has, is_issued};
use crate::common::timestamp;
use coracle_api::certificate::Name;
use coracle_api::well_known;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) const API_CLIENT: &str = well_known::SIGNER_CLIENT;
pub(super) const KUBELET_CLIENT: &str = well_known::SIGNER_KUBELET_CLIENT;
pub(super) const KUBELET_SERVING: &str = well_known::SIGNER_KUBELET_SERVING;
pub(super) const LEGACY_UNKNOWN: &str = well_known::SIGNER_LEGACY_UNKNOWN;

/// The user that upstream's role of service proxies is bound to.
const PROXY: &str = "system:kube-proxy";

/// Upstream's `--cluster-signing-duration`, a year: the longest life of a certificate.
const MAX_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// Less would be gone before clocks agree on it (upstream's lower bound).
const MIN_LIFETIME: Duration = Duration::from_secs(600);

/// Upstream's times after which a request is deleted: decided or failed, and still undecided.
const DECIDED_TTL: SignedDuration = SignedDuration::from_hours(1);
const PENDING_TTL: SignedDuration = SignedDuration::from_hours(24);

/// A right by which the requester may have this approved: the subresource of `certificatesigningrequests` to `create`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permission {
    pub subresource: &'static str,
    pub message: &'static str,
}

/// The rights to ask for, in their order; none for requests that are not approved by themselves.
///
/// Upstream approves kubelets' client certificates alone. Machines that join need two more, and have the rights to them
/// from Coracle's own roles: the serving certificate of their port, and the proxy's client certificate.
pub(super) fn permissions(signer: &str, username: &str, wanted: &Wanted) -> Vec<Permission> {
    match signer {
        KUBELET_CLIENT if kubelet_client(wanted).is_ok() => kubelet_permissions(username, wanted),
        KUBELET_SERVING if kubelet_serving(wanted).is_ok() && username == wanted.common_name => {
            vec![Permission {
                subresource: "selfnodeserver",
                message: "Auto approving self kubelet server certificate after SubjectAccessReview.",
            }]
        }
        API_CLIENT if is_proxy(wanted) => vec![Permission {
            subresource: "nodeproxyclient",
            message: "Auto approving kube-proxy client certificate after SubjectAccessReview.",
        }],
        _ => Vec::new(),
    }
}

/// Exactly upstream's identity of kube-proxy: nobody becomes anybody else by this right.
fn is_proxy(wanted: &Wanted) -> bool {
    let nothing_else = wanted.organizations.is_empty() && wanted.names.is_empty();
    wanted.common_name == PROXY && nothing_else && api_client(wanted).is_ok()
}

/// The node that the request is about, if it is one of a kubelet.
pub(super) fn node_of<'w>(signer: &str, wanted: &'w Wanted) -> Option<&'w str> {
    wanted
        .common_name
        .strip_prefix("system:node:")
        .filter(|_| matches!(signer, KUBELET_SERVING | KUBELET_CLIENT))
}

fn kubelet_permissions(username: &str, wanted: &Wanted) -> Vec<Permission> {
    let mut all = Vec::new();
    if username == wanted.common_name {
        all.push(Permission {
            subresource: "selfnodeclient",
            message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
        });
    }
    all.push(Permission {
        subresource: "nodeclient",
        message: "Auto approving kubelet client certificate after SubjectAccessReview.",
    });
    all
}

/// Whether the signer is one of Kubernetes' own.
pub(super) fn is_ours(signer: &str) -> bool {
    matches!(signer, API_CLIENT | KUBELET_CLIENT | KUBELET_SERVING | LEGACY_UNKNOWN)
}

/// Whether one of Kubernetes' signers signs this; `None` for signers that are not ours. The error is told in a condition.
pub(super) fn verdict(signer: &str, wanted: &Wanted) -> Option<Result<(), String>> {
    match signer {
        API_CLIENT => Some(api_client(wanted)),
        KUBELET_CLIENT => Some(kubelet_client(wanted)),
        KUBELET_SERVING => Some(kubelet_serving(wanted)),
        LEGACY_UNKNOWN => Some(Ok(())),
        _ => None,
    }
}

fn api_client(wanted: &Wanted) -> Result<(), String> {
    for usage in &wanted.usages {
        if !matches!(usage.as_str(), "digital signature" | "key encipherment" | "client auth") {
            return Err(format!("invalid usage for client certificate: {usage}"));
        }
    }
    if wanted.common_name.is_empty() {
        return Err("the subject has no common name".to_owned());
    }
    if wanted.usages.contains("client auth") {
        Ok(())
    } else {
        Err("missing required usage for client certificate: client auth".to_owned())
    }
}

fn kubelet_client(wanted: &Wanted) -> Result<(), String> {
    of_nodes(wanted)?;
    none_of(wanted, &[(is_dns, "DNS"), (is_email, "Email"), (is_ip, "IP"), (is_uri, "URI")])?;
    named_as_node(wanted)?;
    usages(wanted, "client auth")
}

fn kubelet_serving(wanted: &Wanted) -> Result<(), String> {
    of_nodes(wanted)?;
    if !wanted.has(is_dns) && !wanted.has(is_ip) {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    none_of(wanted, &[(is_email, "Email"), (is_uri, "URI")])?;
    usages(wanted, "server auth")?;
    named_as_node(wanted)
}

/// Whether a name is of some kind.
type Kind = fn(&Name) -> bool;

fn is_dns(name: &Name) -> bool {
    matches!(name, Name::Dns(_))
}

fn is_ip(name: &Name) -> bool {
    matches!(name, Name::Ip(_))
}

fn is_email(name: &Name) -> bool {
    matches!(name, Name::Email(_))
}

fn is_uri(name: &Name) -> bool {
    matches!(name, Name::Uri(_))
}

/// Refuses the first kind of alternative name that there is any of.
fn none_of(wanted: &Wanted, kinds: &[(Kind, &str)]) -> Result<(), String> {
    match kinds.iter().find(|(kind, _)| wanted.has(*kind)) {
        Some((_, kind)) => Err(format!("{kind} subjectAltNames are not allowed")),
        None => Ok(()),
    }
}

fn of_nodes(wanted: &Wanted) -> Result<(), String> {
    if wanted.organizations == ["system:nodes"] {
        Ok(())
    } else {
        Err("subject organization is not system:nodes".to_owned())
    }
}

fn named_as_node(wanted: &Wanted) -> Result<(), String> {
    if wanted.common_name.starts_with("system:node:") {
        Ok(())
    } else {
        Err("subject common name does not begin with system:node: ".to_owned())
    }
}

/// `purpose` and a digital signature, with key encipherment or without (keys that are not RSA).
fn usages(wanted: &Wanted, purpose: &str) -> Result<(), String> {
    let set = |list: &[&str]| list.iter().map(|u| (*u).to_owned()).collect::<BTreeSet<String>>();
    let with_rsa = set(&[purpose, "digital signature", "key encipherment"]);
    if wanted.usages == with_rsa || wanted.usages == set(&[purpose, "digital signature"]) {
        return Ok(());
    }
    let expected: Vec<String> = with_rsa.into_iter().collect();
    Err(format!("usages did not match [{}]", expected.join(" ")))
}

/// As long as was asked for, but at least ten minutes and at most a year.
pub(super) fn life(expiration_seconds: Option<i32>) -> Duration {
    let asked = expiration_seconds.map(|s| Duration::from_secs(u64::try_from(s).unwrap_or_default()));
    asked.map_or(MAX_LIFETIME, |asked| asked.clamp(MIN_LIFETIME, MAX_LIFETIME))
}

/// When the request may be deleted. One that was approved waits for its signature as long as that takes.
pub(super) fn end_of(csr: &CertificateSigningRequest) -> Option<Timestamp> {
    let conditions = csr.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let mut ends: Vec<Timestamp> = Vec::new();
    let over = |kind: &str| matches!(kind, "Denied" | "Failed") || kind == "Approved" && is_issued(csr);
    for condition in conditions.iter().filter(|c| over(&c.type_)) {
        ends.extend(
            timestamp(condition.last_update_time.as_ref())
                .map(|at| at.saturating_add(DECIDED_TTL).unwrap_or(at)),
        );
    }
    if conditions.is_empty() && !is_issued(csr) {
        let created = timestamp(csr.metadata.creation_timestamp.as_ref());
        ends.extend(created.map(|at| at.saturating_add(PENDING_TTL).unwrap_or(at)));
    }
    ends.extend(certificate_end(csr));
    ends.into_iter().min()
}

fn certificate_end(csr: &CertificateSigningRequest) -> Option<Timestamp> {
    use x509_parser::prelude::{FromDer, X509Certificate};
    let pem = csr.status.as_ref()?.certificate.as_ref()?;
    let (_, block) = x509_parser::pem::parse_x509_pem(&pem.0).ok()?;
    let (_, certificate) = X509Certificate::from_der(&block.contents).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

/// Whether somebody has decided, or there is nothing left to decide.
pub(super) fn is_decided(csr: &CertificateSigningRequest) -> bool {
    is_issued(csr) || has(csr, "Approved") || has(csr, "Denied")
}

/// Whether it waits for a signature.
pub(super) fn awaits_signature(csr: &CertificateSigningRequest) -> bool {
    has(csr, "Approved") && !has(csr, "Denied") && !has(csr, "Failed") && !is_issued(csr)
}
