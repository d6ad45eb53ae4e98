//! Names of plugins, predicates and priorities of older releases, and what does their work now.

use serde_json::{Value, json};

/// The plugin that took over, and why the name went when the change is more than a name.
pub fn successor(name: &str) -> Option<(&'static str, &'static str)> {
    let (now, note) = match name {
        "NodePreferAvoidPods" | "NodePreferAvoidPodsPriority" => (
            "TaintToleration",
            "nodes ask to be avoided by a PreferNoSchedule taint; the weight is not taken over",
        ),
        "SelectorSpread"
        | "SelectorSpreadPriority"
        | "DefaultPodTopologySpread"
        | "ServiceSpreadingPriority" => {
            ("PodTopologySpread", "its default constraints spread the pods of a Service or a controller")
        }
        "EvenPodsSpread" | "EvenPodsSpreadPriority" => ("PodTopologySpread", ""),
        "LeastRequestedPriority" | "LeastRequestPriority" | "NodeResourcesLeastAllocated" => {
            ("NodeResourcesFit", "with the scoring strategy LeastAllocated")
        }
        "MostRequestedPriority" | "NodeResourcesMostAllocated" => {
            ("NodeResourcesFit", "with the scoring strategy MostAllocated")
        }
        "RequestedToCapacityRatio" | "RequestedToCapacityRatioPriority" => {
            ("NodeResourcesFit", "with the scoring strategy RequestedToCapacityRatio")
        }
        "BalancedResourceAllocation" => ("NodeResourcesBalancedAllocation", ""),
        "NodeAffinityPriority" | "MatchNodeSelector" | "PodMatchNodeSelector" | "NodeLabel" => {
            ("NodeAffinity", "")
        }
        "ImageLocalityPriority" => ("ImageLocality", ""),
        "InterPodAffinityPriority" | "MatchInterPodAffinity" | "ServiceAffinity" => ("InterPodAffinity", ""),
        "TaintTolerationPriority" | "PodToleratesNodeTaints" => ("TaintToleration", ""),
        "PodFitsResources" | "GeneralPredicates" | "NodeResourceLimits" => ("NodeResourcesFit", ""),
        "PodFitsHostPorts" | "PodFitsPorts" => ("NodePorts", ""),
        "HostName" | "PodFitsHost" => ("NodeName", ""),
        "NoDiskConflict" => ("VolumeRestrictions", ""),
        "NoVolumeZoneConflict" => ("VolumeZone", ""),
        "CheckVolumeBinding" => ("VolumeBinding", ""),
        "CheckNodeUnschedulable" => ("NodeUnschedulable", ""),
        "EBSLimits"
        | "GCEPDLimits"
        | "AzureDiskLimits"
        | "CinderLimits"
        | "MaxCSIVolumeCountPred"
        | "MaxEBSVolumeCount"
        | "MaxGCEPDVolumeCount"
        | "MaxAzureDiskVolumeCount" => {
            ("NodeVolumeLimits", "limits of all drivers are those of their CSI driver")
        }
        _ => return None,
    };
    Some((now, note))
}

/// What it comes to when an older plugin is disabled whose successor does more than it did.
pub enum Disabled {
    /// Nothing: it is not there.
    Nothing,
    /// The successor, with arguments that leave out what the older one did.
    Without(&'static str, Value),
}

/// `None` for a plugin that only has another name now: disabling it disables its successor.
pub fn disabled(name: &str) -> Option<Disabled> {
    match name {
        "SelectorSpread"
        | "SelectorSpreadPriority"
        | "DefaultPodTopologySpread"
        | "ServiceSpreadingPriority" => {
            Some(Disabled::Without("PodTopologySpread", json!({ "defaultingType": "List" })))
        }
        "NodePreferAvoidPods"
        | "NodePreferAvoidPodsPriority"
        | "NodeLabel"
        | "ServiceAffinity"
        | "EBSLimits"
        | "GCEPDLimits"
        | "AzureDiskLimits"
        | "CinderLimits"
        | "MaxEBSVolumeCount"
        | "MaxGCEPDVolumeCount"
        | "MaxAzureDiskVolumeCount" => Some(Disabled::Nothing),
        _ => None,
    }
}

/// Arguments that make the successor do what the old name said, unless the configuration gives its own.
pub fn arguments(name: &str) -> Option<Value> {
    let kind = match name {
        "MostRequestedPriority" | "NodeResourcesMostAllocated" => "MostAllocated",
        "RequestedToCapacityRatio" | "RequestedToCapacityRatioPriority" => {
            return Some(json!({ "scoringStrategy": {
                "type": "RequestedToCapacityRatio",
                "requestedToCapacityRatio": { "shape": [
                    { "utilization": 0, "score": 0 }, { "utilization": 100, "score": 10 },
                ]},
            }}));
        }
        _ => return None,
    };
    Some(json!({ "scoringStrategy": { "type": kind } }))
}

/// The `args` of an older plugin in the form of its successor's: what was a plugin for each way of scoring resources is
/// one plugin with a strategy now. Others are left as they are, and refused where the successor does not know them.
pub fn converted(name: &str, mut given: Value) -> Value {
    let kind = match name {
        "NodeResourcesLeastAllocated" => "LeastAllocated",
        "NodeResourcesMostAllocated" => "MostAllocated",
        "RequestedToCapacityRatio" => "RequestedToCapacityRatio",
        _ => return given,
    };
    let Some(fields) = given.as_object_mut() else { return given };
    let mut strategy = json!({ "type": kind });
    if let Some(resources) = fields.remove("resources") {
        strategy["resources"] = resources;
    }
    if let Some(shape) = fields.remove("shape") {
        strategy["requestedToCapacityRatio"] = json!({ "shape": shape });
    }
    fields.insert("scoringStrategy".to_owned(), strategy);
    given
}

/// Whether the old name's weight means something for its successor.
pub fn keeps_weight(name: &str) -> bool {
    !name.starts_with("NodePreferAvoidPods")
}
