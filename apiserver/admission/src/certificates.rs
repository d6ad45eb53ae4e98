//! Who may approve and sign certificate requests, and what they may not ask for
//! (<https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#authorization>).

use super::{Operation, Plugin, Request, items};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_access::authz::{Attributes, Decision, MASTERS};
use coracle_api::well_known;
use coracle_api::{ApiError, Object};
use coracle_pki::CertificateRequest;

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
const API_CLIENT: &str = well_known::SIGNER_CLIENT;

/// Approving and denying needs the verb `approve` on the signer.
pub(super) struct CertificateApproval;

/// Writing a certificate or a condition into the status needs the verb `sign` on the signer.
pub(super) struct CertificateSigning;

/// No certificate of the API's own client signer makes anybody a member of `system:masters`.
pub(super) struct CertificateSubjectRestriction;

impl Plugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn validate(
        &self,
        request: &Request,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let (Operation::Update, Some(old)) = (request.operation, old) else { return Ok(()) };
        let signer = signer_of(old);
        if !request.is_for(GROUP, REQUESTS, "approval") {
            return Ok(());
        }
        if adds_approval(object, old) {
            names_one(request, old)?;
        }
        if may(request, "approve", signer) {
            return Ok(());
        }
        Err(request
            .forbidden(&format!("user not permitted to approve requests with signerName \"{signer}\"")))
    }
}

impl Plugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn validate(
        &self,
        request: &Request,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let (Operation::Update, Some(new), Some(old)) = (request.operation, object, old) else {
            return Ok(());
        };
        if !request.is_for(GROUP, REQUESTS, "status") {
            return Ok(());
        }
        let (now, before) = (&new["status"], &old["status"]);
        let same = now["certificate"] == before["certificate"]
            && items(&now["conditions"]) == items(&before["conditions"]);
        if now["certificate"] != before["certificate"] {
            names_one(request, old)?;
        }
        let signer = signer_of(old);
        if same || may(request, "sign", signer) {
            return Ok(());
        }
        Err(request.forbidden(&format!("user not permitted to sign requests with signerName \"{signer}\"")))
    }
}

impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn validate(
        &self,
        request: &Request,
        object: Option<&Object>,
        _old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let Some(object) = object.filter(|_| request.is(Operation::Create, GROUP, REQUESTS)) else {
            return Ok(());
        };
        if signer_of(object) != API_CLIENT {
            return Ok(());
        }
        let wanted = CertificateRequest::from_pem(&pem_of(object))
            .map_err(|e| request.forbidden(&format!("unable to parse certificate signing request: {e}")))?;
        let holder = wanted.holder().map_err(|e| request.forbidden(&format!("x509: {e}")))?;
        if holder.organizations.iter().any(|o| o == MASTERS) {
            let why = format!("use of {API_CLIENT} signer with {MASTERS} group is not allowed");
            return Err(request.forbidden(&why));
        }
        Ok(())
    }
}

fn signer_of(object: &Object) -> &str {
    object["spec"]["signerName"].as_str().unwrap_or_default()
}

fn pem_of(object: &Object) -> Vec<u8> {
    STANDARD.decode(object["spec"]["request"].as_str().unwrap_or_default()).unwrap_or_default()
}

fn adds_approval(object: Option<&Object>, old: &Object) -> bool {
    let approved =
        |object: &Object| items(&object["status"]["conditions"]).iter().any(|c| c["type"] == "Approved");
    object.is_some_and(approved) && !approved(old)
}

/// Requests of an earlier version may name two users; they are neither approved nor signed any more.
fn names_one(request: &Request, stored: &Object) -> Result<(), ApiError> {
    let Ok(wanted) = CertificateRequest::from_pem(&pem_of(stored)) else { return Ok(()) };
    wanted.check_subject().map_err(|e| request.forbidden(&e.to_string()))
}

/// Asks for the signer itself, then for all signers of its domain. Without an authorizer nobody is asked, as for every
/// other right on such a server.
fn may(request: &Request, verb: &str, signer: &str) -> bool {
    let Some(authorizer) = request.authorizer else { return true };
    let domain = signer.split('/').next().unwrap_or_default();
    let ask = |name: &str| {
        let asked = Attributes {
            name,
            version: "*",
            ..Attributes::resource(request.user, verb, GROUP, "signers", "")
        };
        matches!(authorizer.authorize(&asked), Decision::Allow(_))
    };
    ask(signer) || ask(&format!("{domain}/*"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Try, World};
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};
    use serde_json::json;

    /// As an earlier version let it in; the second attribute type is the first one's number.
    fn stored(names: &[&str]) -> Object {
        let mut params = CertificateParams::default();
        for (kind, name) in
            [DnType::CommonName, DnType::CustomDnType(vec![2, 5, 4, 3])].into_iter().zip(names)
        {
            params.distinguished_name.push(kind, *name);
        }
        let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        json!({ "metadata": { "name": "a" }, "spec": { "request": STANDARD.encode(pem), "signerName": "example.com/s" } })
    }

    #[test]
    fn a_request_of_two_users_is_neither_approved_nor_signed() {
        let world = World::new();
        let update = |resource: &'static str, plugin: &dyn Plugin, old: &Object, status: Object| {
            let mut new = old.clone();
            new["status"] = status;
            let asked = Try { operation: Operation::Update, ..Try::create(&world, resource) };
            asked.with(old, |request| plugin.validate(request, Some(&new), Some(old))).map_err(|e| e.message)
        };
        let decided = |kind: &str| json!({ "conditions": [{ "type": kind, "status": "True" }] });
        let signed = json!({ "certificate": "eA==" });
        let approval = "certificatesigningrequests.certificates.k8s.io/approval";
        let status = "certificatesigningrequests.certificates.k8s.io/status";
        let (one, two) = (stored(&["system:node:x"]), stored(&["system:node:x", "admin"]));
        let why = update(approval, &CertificateApproval, &two, decided("Approved")).unwrap_err();
        assert!(why.ends_with("x509: the subject has 2 common names: one is allowed"), "{why}");
        update(approval, &CertificateApproval, &two, decided("Denied")).unwrap();
        update(approval, &CertificateApproval, &one, decided("Approved")).unwrap();
        let why = update(status, &CertificateSigning, &two, signed.clone()).unwrap_err();
        assert!(why.ends_with("x509: the subject has 2 common names: one is allowed"), "{why}");
        update(status, &CertificateSigning, &two, decided("Failed")).unwrap();
        update(status, &CertificateSigning, &one, signed).unwrap();
    }
}
