//! The `token` subresource of service accounts
//! (<https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/>).

use super::{invalid, node_audience, strings, text};
use crate::authn::claims::Reference;
use crate::authn::{Bound, IssueRequest, ServiceAccountTokens};
use crate::authz::Authorizer;
use crate::authz::node::check_token as check_node_token;
use coracle_api::{ApiError, FieldError, Object, UserInfo};
use coracle_requests::ObjectReader;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Upstream's default lifetime, an hour.
const DEFAULT_SECONDS: i64 = 3600;
/// Upstream's bounds, ten minutes and 2^32 seconds.
const MIN_SECONDS: i64 = 600;
const MAX_SECONDS: i64 = 1 << 32;

/// What a request for a token is judged by.
pub struct TokenContext<'a> {
    pub tokens: &'a ServiceAccountTokens,
    pub read: &'a dyn ObjectReader,
    pub user: &'a UserInfo,
    pub authorizer: &'a dyn Authorizer,
    pub now: Timestamp,
}

/// A token, and what to warn the client of.
pub struct Granted {
    pub answer: Object,
    pub warning: Option<String>,
}

/// Answers `POST .../serviceaccounts/<name>/token`. The registry has authorized it (`create serviceaccounts/token`).
pub fn token_request(
    request: Object,
    namespace: &str,
    name: &str,
    context: &TokenContext<'_>,
) -> Result<Granted, ApiError> {
    let mut request = request;
    super::take_namespace(&mut request, namespace)?;
    check_node(&request["spec"], namespace, name, context)?;
    check_name(&request, name)?;
    let account = context.read.get("serviceaccounts.", namespace, name);
    let account = account.ok_or_else(|| ApiError::not_found("", "serviceaccounts", name))?;
    let (sent, own) = (text(&request["metadata"], "uid"), text(&account["metadata"], "uid"));
    if !sent.is_empty() && sent != own {
        let why = format!(
            "the UID in the token request ({sent}) does not match the UID of the service account ({own})"
        );
        return Err(ApiError::conflict("authentication.k8s.io", "TokenRequest", name, &why));
    }
    let asked = lifetime(&request)?;
    let bound = bound_to(&request["spec"]["boundObjectRef"], namespace, name, context)?;
    let (seconds, warning) = shortened(asked, context.tokens.max_seconds());
    let audiences = strings(&request["spec"]["audiences"]);
    let uid = own.to_owned();
    let issue = IssueRequest {
        namespace,
        service_account: Reference { name: name.to_owned(), uid: uid.clone() },
        audiences,
        expiration_seconds: seconds,
        bound,
    };
    let issued = context.tokens.issue(issue, context.now).map_err(ApiError::internal)?;
    let mut answer = request;
    answer["metadata"] = json!({
        "name": name, "namespace": namespace, "uid": uid, "creationTimestamp": whole_seconds(context.now),
    });
    answer["spec"]["audiences"] = json!(issued.audiences);
    answer["spec"]["expirationSeconds"] = seconds.into();
    answer["status"] = json!({ "token": issued.token, "expirationTimestamp": whole_seconds(issued.expires) });
    Ok(Granted { answer, warning })
}

/// What a kubelet may ask for, which is judged before anything else, as admission does it upstream.
fn check_node(
    spec: &Value,
    namespace: &str,
    account: &str,
    context: &TokenContext<'_>,
) -> Result<(), ApiError> {
    let pod = |pod: &str| context.read.get("pods.", namespace, pod);
    let Some(pod) = check_node_token(context.user, account, &spec["boundObjectRef"], pod)? else {
        return Ok(());
    };
    let asked = node_audience::Request {
        user: context.user,
        authorizer: context.authorizer,
        read: context.read,
        namespace,
        account,
        audiences: &spec["audiences"],
    };
    node_audience::check(&asked, &pod)
}

/// The lifetime within the server's bound, which is none if it is 0.
fn shortened(asked: i64, most: i64) -> (i64, Option<String>) {
    if most <= 0 || asked <= most {
        return (asked, None);
    }
    (most, Some(format!("requested expiration of {asked} seconds shortened to {most} seconds")))
}

/// A request may name the account that the URL names.
fn check_name(request: &Object, name: &str) -> Result<(), ApiError> {
    let sent = text(&request["metadata"], "name");
    if sent.is_empty() || sent == name {
        return Ok(());
    }
    let why = "must match the service account name if specified";
    let error = FieldError::invalid("metadata.name", &sent.into(), why);
    Err(ApiError::invalid("authentication.k8s.io", "TokenRequest", name, &[error]))
}

fn whole_seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

fn lifetime(request: &Object) -> Result<i64, ApiError> {
    let value = &request["spec"]["expirationSeconds"];
    let seconds = if value.is_null() { DEFAULT_SECONDS } else { value.as_i64().unwrap_or(0) };
    let why = match seconds {
        s if s < MIN_SECONDS => "may not specify a duration less than 10 minutes",
        s if s > MAX_SECONDS => "may not specify a duration larger than 2^32 seconds",
        _ => return Ok(seconds),
    };
    invalid(request, vec![FieldError::invalid("spec.expirationSeconds", value, why)])?;
    Ok(seconds)
}

fn bound_to(
    reference: &Value,
    namespace: &str,
    account: &str,
    context: &TokenContext<'_>,
) -> Result<Bound, ApiError> {
    if !reference.is_object() {
        return Ok(Bound::default());
    }
    let (version, kind, name) =
        (text(reference, "apiVersion"), text(reference, "kind"), text(reference, "name"));
    let resource = match (version.contains('/'), kind) {
        (false, "Pod") => "pods",
        (false, "Secret") => "secrets",
        (false, "Node") => "nodes",
        _ => {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(ApiError::bad_request(why));
        }
    };
    let scope = if resource == "nodes" { "" } else { namespace };
    let object = context.read.get(&format!("{resource}."), scope, name);
    let object = object.ok_or_else(|| ApiError::not_found("", resource, name))?;
    if resource == "pods" && text(&object["spec"], "serviceAccountName") != account {
        let why = format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
        );
        return Err(ApiError::bad_request(why));
    }
    let (wanted, uid) = (text(reference, "uid"), text(&object["metadata"], "uid"));
    if !wanted.is_empty() && wanted != uid {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. \
             The object might have been deleted and then recreated"
        );
        return Err(ApiError::conflict("", kind, name, &why));
    }
    let own = Some(Reference { name: name.to_owned(), uid: uid.to_owned() });
    match resource {
        "pods" => {
            let node = node_of(&object, context.read);
            Ok(Bound { pod: own, node, ..Bound::default() })
        }
        "secrets" => Ok(Bound { secret: own, ..Bound::default() }),
        _ => Ok(Bound { node: own, ..Bound::default() }),
    }
}

/// The node that a pod runs on; without its uid if the Node object is gone.
fn node_of(pod: &Object, read: &dyn ObjectReader) -> Option<Reference> {
    let name = text(&pod["spec"], "nodeName");
    if name.is_empty() {
        return None;
    }
    let uid =
        read.get("nodes.", "", name).map(|n| text(&n["metadata"], "uid").to_owned()).unwrap_or_default();
    Some(Reference { name: name.to_owned(), uid })
}
