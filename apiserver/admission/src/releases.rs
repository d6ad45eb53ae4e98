//! Secrets of releases that the manifests directory keeps ([`coracle_api::releases`]): helm makes of them what they say, with
//! an administrator's rights. So who may write Secrets of one namespace may not write those, and their like in no other.
//!
//! No plugin: nobody can turn it off.

use super::Request;
use coracle_access::authz::{Attributes, Decision};
use coracle_api::releases::{HASH, KEPT, kept, taken_for};
use coracle_api::{ApiError, Object};
use serde_json::Value;

/// Refuses what only administrators may write. Deletions are not looked at: without a Secret helm knows less, and believes
/// nobody more.
pub(super) fn check(
    request: &Request,
    object: Option<&Object>,
    old: Option<&Object>,
) -> Result<(), ApiError> {
    let Some(new) = object else { return Ok(()) };
    let why = match (request.group, request.resource) {
        ("", "secrets") if new == old.unwrap_or(&Value::Null) => None,
        ("", "secrets") => [Some(new), old].into_iter().flatten().find_map(|secret| of_kept(request, secret)),
        ("", "namespaces") if marks(new) != old.map(marks).unwrap_or_default() => {
            Some(format!("the annotations {KEPT}... name releases that the manifests directory keeps"))
        }
        _ => None,
    };
    match why.filter(|_| !is_administrator(request)) {
        Some(why) => {
            Err(request
                .forbidden(&format!("{why}: it is written by who may update Secrets of all namespaces")))
        }
        None => Ok(()),
    }
}

/// Whoever may write all Secrets has the cluster without helm, too.
fn is_administrator(request: &Request) -> bool {
    let Some(authorizer) = request.authorizer else { return true };
    let asked = Attributes::resource(request.user, "update", "", "secrets", "");
    matches!(authorizer.authorize(&asked), Decision::Allow(_))
}

/// Why a Secret is not everybody's.
fn of_kept(request: &Request, secret: &Object) -> Option<String> {
    let metadata = &secret["metadata"];
    if !metadata["labels"][HASH].is_null() {
        return Some(format!("the label {HASH} is of releases that the manifests directory keeps"));
    }
    let name = metadata["name"].as_str().unwrap_or_default();
    let mut releases = taken_for(name, |label| metadata["labels"][label].as_str()).peekable();
    releases.peek()?;
    let namespace = request.read.get("namespaces.", "", request.namespace)?;
    let is_kept = |release: &&str| !namespace["metadata"]["annotations"][kept(release)].is_null();
    let release = releases.find(is_kept)?;
    Some(format!("the manifests directory keeps the release {release}"))
}

fn marks(namespace: &Object) -> Vec<(&String, &Value)> {
    let annotations = namespace["metadata"]["annotations"].as_object().into_iter().flatten();
    annotations.filter(|(key, _)| key.starts_with(KEPT)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use coracle_access::authz::Chain;
    use coracle_api::UserInfo;
    use serde_json::json;

    /// Whether a tenant, and an administrator, may write it over the other.
    fn may(resource: &'static str, new: &Object, old: Option<&Object>) -> [bool; 2] {
        let world = World::new();
        let annotations = json!({ "release.coracle.local/web": "" });
        world.put("namespaces.", json!({ "metadata": { "name": "apps", "annotations": annotations } }));
        let chain = Chain::new(world.clone(), world.generation());
        [&[][..], &["system:masters"]].map(|groups| {
            let user = UserInfo::authenticated("jane", groups);
            let operation = if old.is_some() { Operation::Update } else { Operation::Create };
            Try { user, operation, ..Try::create(&world, resource) }.with(new, |request| {
                let request = Request { authorizer: Some(&chain), ..*request };
                check(&request, Some(new), old).is_ok()
            })
        })
    }

    fn secret(namespace: &str, name: &str, labels: Value) -> Object {
        json!({ "metadata": { "namespace": namespace, "name": name, "labels": labels } })
    }

    #[test]
    fn a_tenant_writes_no_secret_that_helm_takes_for_one_of_a_kept_release() {
        const ADMINISTRATORS: [bool; 2] = [false, true];
        const ANYBODYS: [bool; 2] = [true, true];
        let of_web = json!({ "owner": "helm", "name": "web", "version": "9", "status": "deployed" });
        for (namespace, name, labels, expected) in [
            ("apps", "x", of_web.clone(), ADMINISTRATORS),
            ("apps", "sh.helm.release.v1.web.v9", json!({}), ADMINISTRATORS),
            ("apps", "sh.helm.release.v1.other.v9", json!({ "owner": "helm", "name": "other" }), ANYBODYS),
            ("apps", "web", json!({}), ANYBODYS),
            ("else", "sh.helm.release.v1.web.v9", of_web, ANYBODYS),
            ("else", "x", json!({ HASH: "h" }), ADMINISTRATORS),
        ] {
            let (new, bare) = (secret(namespace, name, labels), secret(namespace, "x", json!({})));
            assert_eq!(may("secrets.", &new, None), expected, "{new}");
            assert_eq!(may("secrets.", &new, Some(&bare)), expected, "{new}");
            // What made it one of them is not taken away either.
            assert_eq!(may("secrets.", &bare, Some(&new)), expected, "{new}");
            assert_eq!(may("secrets.", &new, Some(&new)), ANYBODYS, "it stays as it is");
        }
    }

    #[test]
    fn who_keeps_a_release_is_said_by_administrators() {
        let namespace =
            |annotations: Value| json!({ "metadata": { "name": "apps", "annotations": annotations } });
        let (bare, kept) =
            (namespace(json!({ "a": "b" })), namespace(json!({ "release.coracle.local/web": "" })));
        for (new, old) in [(&kept, None), (&kept, Some(&bare)), (&bare, Some(&kept))] {
            assert_eq!(may("namespaces.", new, old), [false, true]);
        }
        let other = namespace(json!({ "release.coracle.local/web": "", "a": "c" }));
        assert_eq!(may("namespaces.", &other, Some(&kept)), [true, true]);
        assert_eq!(may("configmaps.", &kept, None), [true, true]);
    }
}
