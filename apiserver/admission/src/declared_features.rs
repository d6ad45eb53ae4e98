//! NodeDeclaredFeatureValidator: an update of a pod may need something that its node has to declare it can do (KEP-5328,
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/node-declared-features/>).

use super::{Operation, Plugin, Request, items};
use coracle_api::quantity::Quantity;
use coracle_api::{ApiError, Object};
use serde_json::Value;

pub(super) struct NodeDeclaredFeatureValidator;

/// Whether the change from one pod to the other, `(new, old)`, needs the feature.
type Needs = fn(&Object, &Object) -> bool;

/// In the order of names.
const FEATURES: [(&str, Needs); 3] = [
    ("GuaranteedQoSPodCPUResize", changes_guaranteed_cpu),
    ("InPlacePodLevelResourcesVerticalScaling", |new, old| {
        new["spec"]["resources"] != old["spec"]["resources"]
    }),
    ("InPlacePodVerticalScalingInitContainers", changes_init_containers),
];

fn pairs<'a>(new: &'a Object, old: &'a Object, field: &str) -> impl Iterator<Item = (&'a Value, &'a Value)> {
    items(&new["spec"][field]).iter().zip(items(&old["spec"][field]))
}

fn changes_guaranteed_cpu(new: &Object, old: &Object) -> bool {
    let cpu = |container: &Value| {
        let text = container["resources"]["requests"]["cpu"].as_str();
        text.and_then(|text| text.parse::<Quantity>().ok()).unwrap_or(Quantity::ZERO)
    };
    old["status"]["qosClass"] == "Guaranteed"
        && pairs(new, old, "containers").any(|(new, old)| cpu(new) != cpu(old))
}

fn changes_init_containers(new: &Object, old: &Object) -> bool {
    let plain = |container: &Value| container["restartPolicy"] != "Always";
    pairs(new, old, "initContainers").any(|(new, old)| plain(old) && new["resources"] != old["resources"])
}

impl Plugin for NodeDeclaredFeatureValidator {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatureValidator"
    }

    fn handles(&self, operation: Operation) -> bool {
        operation == Operation::Update
    }

    fn validate(
        &self,
        request: &Request,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let is_pod = ["", "resize"].iter().any(|part| request.is_for("", "pods", part));
        let Some((new, old)) = object.zip(old).filter(|_| is_pod) else { return Ok(()) };
        let needed: Vec<_> = FEATURES.iter().filter(|(_, needs)| needs(new, old)).collect();
        if needed.is_empty() {
            return Ok(());
        }
        let Some(node) = request.node_of(new)? else { return Ok(()) };
        let declared = items(&node["status"]["declaredFeatures"]);
        let lacking = needed.iter().map(|(feature, _)| *feature);
        let lacking: Vec<_> = lacking.filter(|feature| !declared.iter().any(|own| own == feature)).collect();
        if lacking.is_empty() {
            return Ok(());
        }
        let (lacking, name) = (lacking.join(", "), new["spec"]["nodeName"].as_str().unwrap_or_default());
        Err(request.forbidden(&format!(
            "pod update requires features {lacking} which are not available on node \"{name}\""
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use serde_json::json;

    fn bound(resources: &Value) -> Object {
        let mut pod = pod();
        pod["spec"]["nodeName"] = "n".into();
        pod["spec"]["containers"][0]["resources"] = resources.clone();
        pod["spec"]["initContainers"] = json!([{ "name": "i" }, { "name": "s", "restartPolicy": "Always" }]);
        pod["status"]["qosClass"] = "Guaranteed".into();
        pod
    }

    #[test]
    fn what_an_update_needs_the_node_declares() {
        let world = World::new();
        let asked = json!({ "requests": { "cpu": "1" } });
        let old = bound(&asked);
        let refused = |new: &Object, old: &Object| {
            let attempt = Try { operation: Operation::Update, ..Try::create(&world, "pods./resize") };
            attempt.validate(&NodeDeclaredFeatureValidator, new, Some(old)).err().map(|e| e.to_string())
        };
        assert_eq!(refused(&bound(&json!({ "requests": { "cpu": "1000m" } })), &old), None);
        let more = bound(&json!({ "requests": { "cpu": "2" } }));
        let unknown = refused(&more, &old).unwrap();
        assert!(unknown.contains("pods \"web\" is forbidden: node \"n\" not found"), "{unknown}");
        world.put("nodes.", json!({ "metadata": { "name": "n" } }));
        let mut all = more.clone();
        all["spec"]["resources"] = asked.clone();
        all["spec"]["initContainers"][0]["resources"] = asked.clone();
        let lacking = refused(&all, &old).unwrap();
        assert!(
            lacking.contains(
                "pod update requires features GuaranteedQoSPodCPUResize, InPlacePodLevelResourcesVerticalScaling, \
                 InPlacePodVerticalScalingInitContainers which are not available on node \"n\""
            ),
            "{lacking}"
        );
        let mut sidecar = old.clone();
        sidecar["spec"]["initContainers"][1]["resources"] = asked;
        assert_eq!(refused(&sidecar, &old), None);
        let mut burstable = old.clone();
        burstable["status"]["qosClass"] = "Burstable".into();
        assert_eq!(refused(&more, &burstable), None);
        let names: Vec<_> = FEATURES.iter().map(|(name, _)| *name).collect();
        assert!(names.is_sorted());
        world.put("nodes.", json!({ "metadata": { "name": "n" }, "status": { "declaredFeatures": names } }));
        assert_eq!(refused(&all, &old), None);
    }
}
