//! ServiceAccount: every pod acts as one, and finds its token at a known place
//! (<https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/>).

use super::{Operation, Plugin, Request, is_mirror, items, items_mut, present_items};
use coracle_api::{ApiError, Object};
use rand::Rng as _;
use serde_json::{Value, json};
use std::time::Duration;

pub(super) struct ServiceAccount;

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
/// An hour and seven seconds: the odd number tells the token server that this volume asks, not a person.
const TOKEN_SECONDS: i64 = 3607;
/// Upstream's alphabet for generated names: no vowels and nothing easily mistaken.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A new namespace's `default` account is made by a controller. A pod that is created right behind the namespace waits
/// for it: ten times 100 ms, as upstream.
const WAIT_TIMES: u32 = 40;
const WAIT_INTERVAL: Duration = Duration::from_millis(25);

/// Waits for the default account that this new pod needs; returns at once where it needs none or has it.
pub(super) async fn wait_for_default(request: &Request<'_>, pod: &Object) {
    if !request.is(Operation::Create, "", "pods") || is_mirror(pod) || account_name(pod) != "default" {
        return;
    }
    for _ in 0..WAIT_TIMES {
        let exists = request.read.get("serviceaccounts.", request.namespace, "default").is_some();
        if exists || request.read.get("namespaces.", "", request.namespace).is_none() {
            return;
        }
        tokio::time::sleep(WAIT_INTERVAL).await;
    }
}

fn account_name(pod: &Object) -> &str {
    let name = |field: &str| pod["spec"][field].as_str().filter(|n| !n.is_empty());
    name("serviceAccountName").or_else(|| name("serviceAccount")).unwrap_or("default")
}

impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn mutate(&self, request: &Request, pod: &mut Object, _old: Option<&Object>) -> Result<(), ApiError> {
        if !request.is(Operation::Create, "", "pods") {
            return Ok(());
        }
        if is_mirror(pod) {
            return check_mirror(request, pod);
        }
        let name = account_name(pod).to_owned();
        let Some(account) = request.read.get("serviceaccounts.", request.namespace, &name) else {
            let namespace = request.namespace;
            let why = format!(
                "error looking up service account {namespace}/{name}: serviceaccount \"{name}\" not found"
            );
            return Err(request.forbidden(&why));
        };
        pod["spec"]["serviceAccountName"] = name.into();
        if wants_token(pod, &account) {
            mount_token(pod);
        }
        let pull_secrets = &account["imagePullSecrets"];
        if items(&pod["spec"]["imagePullSecrets"]).is_empty() && !items(pull_secrets).is_empty() {
            pod["spec"]["imagePullSecrets"] = pull_secrets.clone();
        }
        Ok(())
    }
}

/// A mirror pod shows what a file on the node says; it must give its node no access to anything.
fn check_mirror(request: &Request, pod: &Object) -> Result<(), ApiError> {
    let named = |field: &str| pod["spec"][field].as_str().is_some_and(|n| !n.is_empty());
    if named("serviceAccountName") || named("serviceAccount") {
        return Err(request.forbidden("a mirror pod may not reference service accounts"));
    }
    let projects_token = |volume: &Value| {
        items(&volume["projected"]["sources"]).iter().any(|s| s["serviceAccountToken"].is_object())
    };
    if items(&pod["spec"]["volumes"]).iter().any(projects_token) {
        return Err(request.forbidden("a mirror pod may not use ServiceAccountToken volume projections"));
    }
    Ok(())
}

fn wants_token(pod: &Object, account: &Object) -> bool {
    let own = pod["spec"]["automountServiceAccountToken"].as_bool();
    own.or_else(|| account["automountServiceAccountToken"].as_bool()).unwrap_or(true)
}

fn has_mount(container: &Value) -> bool {
    items(&container["volumeMounts"]).iter().any(|m| m["mountPath"] == MOUNT_PATH)
}

fn mount_token(pod: &mut Object) {
    let present = items(&pod["spec"]["volumes"]).iter().find(|v| is_token_volume(v));
    let present = present.and_then(|v| v["name"].as_str()).map(str::to_owned);
    let name = present.clone().unwrap_or_else(|| free_name(pod));
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        let Some(containers) = present_items(&mut pod["spec"], list) else { continue };
        for container in containers.iter_mut().filter(|c| !has_mount(c)) {
            let mount = json!({ "name": name, "readOnly": true, "mountPath": MOUNT_PATH });
            if let Some(mounts) = items_mut(container, "volumeMounts") {
                mounts.push(mount);
                needed = true;
            }
        }
    }
    if needed
        && present.is_none()
        && let Some(volumes) = items_mut(&mut pod["spec"], "volumes")
    {
        volumes.push(token_volume(&name));
    }
}

fn is_token_volume(volume: &Value) -> bool {
    volume["name"].as_str().is_some_and(|n| n.starts_with(VOLUME_PREFIX))
        && volume["projected"]["sources"] == token_volume("")["projected"]["sources"]
}

fn free_name(pod: &Object) -> String {
    let mut random = rand::rng();
    loop {
        let letter = |_| char::from(SUFFIX_LETTERS[random.random_range(0..SUFFIX_LETTERS.len())]);
        let name = format!("{VOLUME_PREFIX}{}", (0..5).map(letter).collect::<String>());
        if !items(&pod["spec"]["volumes"]).iter().any(|v| v["name"] == name.as_str()) {
            return name;
        }
    }
}

fn token_volume(name: &str) -> Value {
    let field = json!({ "apiVersion": "v1", "fieldPath": "metadata.namespace" });
    json!({
        "name": name,
        "projected": {
            "defaultMode": 420,
            "sources": [
                { "serviceAccountToken": { "expirationSeconds": TOKEN_SECONDS, "path": "token" } },
                { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": field }] } },
            ],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn world(account: Value) -> std::sync::Arc<World> {
        let world = World::new();
        let mut account = account;
        account["metadata"] = json!({ "name": "default", "namespace": "a" });
        world.put("serviceaccounts.", account);
        world
    }

    fn admit(world: &World, pod: Object) -> Result<Object, ApiError> {
        Try::create(world, "pods.").mutate(&ServiceAccount, pod)
    }

    #[test]
    fn a_plain_pod_gets_the_default_account_and_its_token() {
        let world = world(json!({ "imagePullSecrets": [{ "name": "pull" }] }));
        let mut pod = pod();
        pod["spec"]["initContainers"] = json!([{ "name": "i" }]);
        let pod = admit(&world, pod).unwrap();
        assert_eq!(pod["spec"]["serviceAccountName"], "default");
        assert_eq!(pod["spec"]["imagePullSecrets"], json!([{ "name": "pull" }]));
        let volume = &pod["spec"]["volumes"][0];
        let name = volume["name"].as_str().unwrap();
        assert!(name.starts_with(VOLUME_PREFIX) && name.len() == VOLUME_PREFIX.len() + 5, "{name}");
        assert_eq!(volume["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
        let mount = json!([{ "name": name, "readOnly": true, "mountPath": MOUNT_PATH }]);
        assert_eq!(pod["spec"]["containers"][0]["volumeMounts"], mount);
        assert_eq!(pod["spec"]["initContainers"][0]["volumeMounts"], mount);
        assert_eq!(admit(&world, pod.clone()).unwrap(), pod, "twice is once");
    }

    #[test]
    fn the_token_can_be_declined() {
        let declined = json!({ "automountServiceAccountToken": false });
        let mut asking = pod();
        asking["spec"]["automountServiceAccountToken"] = true.into();
        let mut declining = pod();
        declining["spec"]["automountServiceAccountToken"] = false.into();
        let mut mounted = pod();
        mounted["spec"]["containers"][0]["volumeMounts"] =
            json!([{ "name": "own", "mountPath": MOUNT_PATH }]);
        for (account, pod, volumes) in [
            (declined.clone(), pod(), 0),
            (declined, asking, 1),
            (json!({}), declining, 0),
            (json!({}), mounted, 0),
        ] {
            let admitted = admit(&world(account), pod).unwrap();
            assert_eq!(items(&admitted["spec"]["volumes"]).len(), volumes, "{admitted}");
        }
    }

    #[test]
    fn an_account_that_does_not_exist_is_refused() {
        let mut pod = pod();
        pod["spec"]["serviceAccountName"] = "bot".into();
        let error = admit(&world(json!({})), pod).unwrap_err();
        assert_eq!(error.code, 403);
        assert_eq!(
            error.message,
            "pods \"web\" is forbidden: error looking up service account a/bot: serviceaccount \"bot\" not found"
        );
        let mut nameless = json!({ "metadata": { "namespace": "a" } });
        nameless["spec"]["serviceAccountName"] = "bot".into();
        let error = admit(&world(json!({})), nameless).unwrap_err();
        assert!(
            error.message.starts_with("pods \"Unknown\" is forbidden: error looking up"),
            "{}",
            error.message
        );
    }

    #[test]
    fn mirror_pods_have_no_account() {
        let mut pod = pod();
        pod["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "x" });
        let world = World::new();
        assert_eq!(admit(&world, pod.clone()).unwrap(), pod);
        pod["spec"]["serviceAccountName"] = "default".into();
        assert_eq!(admit(&world, pod).unwrap_err().code, 403);
    }

    #[tokio::test]
    async fn waits_a_moment_for_a_new_namespace() {
        let world = World::new();
        world.put("namespaces.", json!({ "metadata": { "name": "a" } }));
        let user = coracle_api::UserInfo::default();
        let request = Request {
            operation: Operation::Create,
            group: "",
            resource: "pods",
            subresource: "",
            namespace: "a",
            name: "web",
            user: &user,
            dry_run: false,
            read: &*world,
            authorizer: None,
            metrics: &coracle_component_base::metrics::Metrics::default(),
            warnings: &parking_lot::Mutex::default(),
        };
        let pod = pod();
        let waiting = wait_for_default(&request, &pod);
        let making = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            world.put("serviceaccounts.", json!({ "metadata": { "name": "default", "namespace": "a" } }));
        };
        let begun = tokio::time::Instant::now();
        tokio::join!(waiting, making);
        assert!(begun.elapsed() < WAIT_INTERVAL * WAIT_TIMES, "it went on when the account was there");
        world.remove("serviceaccounts.", "a", "default");
        wait_for_default(&request, &pod).await;
        assert!(begun.elapsed() >= WAIT_INTERVAL * WAIT_TIMES, "and gives up at last");
    }
}
