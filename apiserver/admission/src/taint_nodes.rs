//! TaintNodesByCondition: a new node gets no pods until the node life-cycle controller has seen it ready.

use super::{Operation, Plugin, Request, items_mut};
use coracle_api::well_known;
use coracle_api::{ApiError, Object};
use serde_json::json;

pub(super) struct TaintNodesByCondition;

const KEY: &str = well_known::NOT_READY;

impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn mutate(&self, request: &Request, node: &mut Object, _old: Option<&Object>) -> Result<(), ApiError> {
        if !request.is(Operation::Create, "", "nodes") {
            return Ok(());
        }
        if node["spec"].is_null() {
            node["spec"] = json!({});
        }
        if let Some(taints) = items_mut(&mut node["spec"], "taints")
            && !taints.iter().any(|t| t["key"] == KEY && t["effect"] == "NoSchedule")
        {
            taints.push(json!({ "key": KEY, "effect": "NoSchedule" }));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn once() {
        let world = World::new();
        let admit =
            |node: Object| Try::create(&world, "nodes.").mutate(&TaintNodesByCondition, node).unwrap();
        let taint = json!([{ "key": KEY, "effect": "NoSchedule" }]);
        let node = admit(json!({ "metadata": { "name": "n" } }));
        assert_eq!(node["spec"]["taints"], taint);
        assert_eq!(admit(node.clone()), node);
    }
}
