//! Who may approve and sign certificate requests, and what they may not ask for
//! (<https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#authorization>).

use super::{Operation, Plugin, Request, items};
use crate::authz::{Attributes, Decision, MASTERS};
use crate::pki::CertificateRequest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_api::{ApiError, Object};

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
const API_CLIENT: &str = "kubernetes.io/kube-apiserver-client";

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
        _object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let (Operation::Update, Some(old)) = (request.operation, old) else { return Ok(()) };
        let signer = signer_of(old);
        if !request.is_for(GROUP, REQUESTS, "approval") || may(request, "approve", signer) {
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
        let pem = STANDARD.decode(object["spec"]["request"].as_str().unwrap_or_default()).unwrap_or_default();
        let wanted = CertificateRequest::from_pem(&pem)
            .map_err(|e| request.forbidden(&format!("unable to parse certificate signing request: {e}")))?;
        if wanted.organizations().iter().any(|o| o == MASTERS) {
            let why = format!("use of {API_CLIENT} signer with {MASTERS} group is not allowed");
            return Err(request.forbidden(&why));
        }
        Ok(())
    }
}

fn signer_of(object: &Object) -> &str {
    object["spec"]["signerName"].as_str().unwrap_or_default()
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
