//! DefaultIngressClass: an Ingress that names no class gets the default one
//! (<https://kubernetes.io/docs/concepts/services-networking/ingress/#default-ingress-class>).

use super::{Operation, Plugin, Request};
use coracle_api::{ApiError, Object};
use std::cmp::Reverse;

pub(super) struct DefaultIngressClass;

const IS_DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";

impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn mutate(&self, request: &Request, ingress: &mut Object, _old: Option<&Object>) -> Result<(), ApiError> {
        let named = ingress["spec"]["ingressClassName"].is_string()
            || ingress["metadata"]["annotations"]["kubernetes.io/ingress.class"].is_string();
        if !request.is(Operation::Create, "networking.k8s.io", "ingresses") || named {
            return Ok(());
        }
        let text = |c: &Object, field: &str| c["metadata"][field].as_str().unwrap_or_default().to_owned();
        let classes = request.read.list("ingressclasses.networking.k8s.io", "");
        let defaults = classes.iter().filter(|c| c["metadata"]["annotations"][IS_DEFAULT] == "true");
        if let Some(class) = defaults.min_by_key(|c| (Reverse(text(c, "creationTimestamp")), text(c, "name")))
        {
            ingress["spec"]["ingressClassName"] = text(class, "name").into();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn only_where_none_is_named() {
        let world = World::new();
        let admit = |metadata: Value, spec: Value| {
            let request = Try::create(&world, "ingresses.networking.k8s.io");
            let ingress = json!({ "metadata": metadata, "spec": spec });
            request.mutate(&DefaultIngressClass, ingress).unwrap()["spec"]["ingressClassName"].clone()
        };
        assert_eq!(admit(json!({}), json!({})), Value::Null);
        let annotations = json!({ IS_DEFAULT: "true" });
        world.put(
            "ingressclasses.networking.k8s.io",
            json!({ "metadata": { "name": "n", "annotations": annotations } }),
        );
        assert_eq!(admit(json!({}), json!({})), "n");
        assert_eq!(admit(json!({}), json!({ "ingressClassName": "own" })), "own");
        let old_way = json!({ "annotations": { "kubernetes.io/ingress.class": "own" } });
        assert_eq!(admit(old_way, json!({})), Value::Null);
    }
}
