//! Which fields a message carries although the object does not: upstream's Go structs hold most fields by value, and
//! their encoder writes those always, zeros and empty messages included. Fields that are pointers in Go are written
//! only when set, and a zero of theirs is not the same as absence.
//!
//! Facts about Go's types, which neither the OpenAPI document nor the numbers on the wire tell. A wrong "by value"
//! would turn an absent field into zero; a wrong "pointer" would only save two bytes, so what is unknown is a pointer.

use super::{Field, Form, Kind, MESSAGES, Message};
use crate::schema;

/// Scalars that are pointers, by the field's name.
const POINTERS: &[&str] = &[
    "activeDeadlineSeconds",
    "adminAccess",
    "allNodes",
    "allocateLoadBalancerNodePorts",
    "allowMultipleAllocations",
    "allowPrivilegeEscalation",
    "allowVolumeExpansion",
    "appProtocol",
    "attachRequired",
    "automountServiceAccountToken",
    "averageUtilization",
    "backoffLimit",
    "backoffLimitPerIndex",
    "bindsToNode",
    "blockOwnerDeletion",
    "bool",
    "borrowingLimitPercent",
    "cachingMode",
    "collisionCount",
    "completionMode",
    "completions",
    "controller",
    "currentCPUUtilizationPercentage",
    "currentVolumeAttributesClassName",
    "defaultMode",
    "deletionGracePeriodSeconds",
    "deprecationWarning",
    "distinctAttribute",
    "enableServiceLinks",
    "endPort",
    "endpointsNamespace",
    "errorCode",
    "expirationSeconds",
    "extendedResourceName",
    "failedIndexes",
    "failedJobsHistoryLimit",
    "failurePolicy",
    "fsGroup",
    "fsGroupChangePolicy",
    "fsGroupPolicy",
    "gmsaCredentialSpec",
    "gmsaCredentialSpecName",
    "gracePeriodSeconds",
    "holderIdentity",
    "hostProcess",
    "hostUsers",
    "hostnameOverride",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "immutable",
    "ingressClassName",
    "initiatorName",
    "int",
    "internalTrafficPolicy",
    "ipFamilyPolicy",
    "ipMode",
    "leaseDurationSeconds",
    "leaseTransitions",
    "lendablePercent",
    "loadBalancerClass",
    "localhostProfile",
    "managedBy",
    "manualSelector",
    "matchAttribute",
    "matchPolicy",
    "maxExpirationSeconds",
    "maxFailedIndexes",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minDomains",
    "minItems",
    "minLength",
    "minProperties",
    "minReplicas",
    "minimum",
    "mode",
    "mountPropagation",
    "multipleOf",
    "nodeAffinityPolicy",
    "nodeAllocatableUpdatePeriodSeconds",
    "nodeTaintsPolicy",
    "nominalConcurrencyShares",
    "optional",
    "optionalOldSelf",
    "orphanDependents",
    "parallelism",
    "parameterNotFoundAction",
    "partition",
    "pathType",
    "perDeviceNodeSelection",
    "persistentVolumeName",
    "podInfoOnMount",
    "podReplacementPolicy",
    "preemptionPolicy",
    "preferredHolder",
    "preventPodSchedulingIfMissing",
    "priority",
    "privileged",
    "procMount",
    "progressDeadlineSeconds",
    "propagationPolicy",
    "readOnlyRootFilesystem",
    "ready",
    "reclaimPolicy",
    "recursiveReadOnly",
    "recursiveReadOnlyMounts",
    "remainingItemCount",
    "replicas",
    "requiresRepublish",
    "resourceClaimName",
    "resourceClaimTemplateName",
    "revisionHistoryLimit",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "runAsUserName",
    "runtimeClassName",
    "seLinuxChangePolicy",
    "seLinuxMount",
    "secretNamespace",
    "selectPolicy",
    "serviceAccountTokenInSecrets",
    "serving",
    "setHostnameAsFQDN",
    "shareID",
    "shareProcessNamespace",
    "sideEffects",
    "stabilizationWindowSeconds",
    "started",
    "startingDeadlineSeconds",
    "stopSignal",
    "storageCapacity",
    "storageClassName",
    "string",
    "succeededCount",
    "succeededIndexes",
    "successfulJobsHistoryLimit",
    "supplementalGroupsPolicy",
    "suspend",
    "targetCPUUtilizationPercentage",
    "terminating",
    "terminatingReplicas",
    "terminationGracePeriodSeconds",
    "timeZone",
    "timeoutSeconds",
    "tolerationSeconds",
    "trafficDistribution",
    "ttlSecondsAfterFinished",
    "unhealthyPodEvictionPolicy",
    "userNamespaces",
    "volumeAttributesClassName",
    "volumeBindingMode",
    "volumeMode",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
];

/// Pointers only in these messages, whose names may be cut at the front.
const POINTERS_OF: &[(&str, &str)] = &[
    ("AzureDiskVolumeSource", "fsType"),
    ("AzureDiskVolumeSource", "readOnly"),
    ("CSIVolumeSource", "fsType"),
    ("CSIVolumeSource", "readOnly"),
    ("ClusterTrustBundleProjection", "name"),
    ("ClusterTrustBundleProjection", "signerName"),
    ("Container", "restartPolicy"),
    ("DeviceAttribute", "version"),
    ("DeviceTaintSelector", "device"),
    ("DeviceTaintSelector", "deviceClassName"),
    ("DeviceTaintSelector", "driver"),
    ("DeviceTaintSelector", "pool"),
    ("EphemeralContainerCommon", "restartPolicy"),
    ("FCVolumeSource", "lun"),
    ("GRPCAction", "service"),
    ("HorizontalPodAutoscalerStatus", "observedGeneration"),
    ("HostPathVolumeSource", "type"),
    ("IngressClassParametersReference", "apiGroup"),
    ("IngressClassParametersReference", "namespace"),
    ("IngressClassParametersReference", "scope"),
    ("LeaseSpec", "strategy"),
    ("LocalVolumeSource", "fsType"),
    ("MutatingWebhook", "reinvocationPolicy"),
    ("NetworkPolicyPort", "protocol"),
    ("NodeFeatures", "supplementalGroupsPolicy"),
    ("NodeSwapStatus", "capacity"),
    ("PodFailurePolicyOnExitCodesRequirement", "containerName"),
    ("Preconditions", "resourceVersion"),
    ("Preconditions", "uid"),
    ("ResourceSliceSpec", "nodeName"),
    ("Rule", "scope"),
    ("ServiceReference", "path"),
    ("ServiceReference", "port"),
    ("TypedLocalObjectReference", "apiGroup"),
    ("TypedObjectReference", "apiGroup"),
    ("TypedObjectReference", "namespace"),
    ("Validation", "reason"),
    ("ValidationRule", "reason"),
    ("VolumeNodeResources", "count"),
    ("WebhookClientConfig", "url"),
    ("core.v1.EndpointAddress", "nodeName"),
    ("discovery.v1.Endpoint", "hostname"),
    ("discovery.v1.Endpoint", "nodeName"),
    ("discovery.v1.Endpoint", "zone"),
    ("discovery.v1.EndpointPort", "name"),
    ("discovery.v1.EndpointPort", "port"),
    ("discovery.v1.EndpointPort", "protocol"),
];

/// By value although their names are among [`POINTERS`].
const PLAIN: &[(&str, &str)] = &[
    ("AWSElasticBlockStoreVolumeSource", "partition"),
    ("CSIStorageCapacity", "storageClassName"),
    ("CustomResourceColumnDefinition", "priority"),
    ("ContainerStatus", "ready"),
    ("DeploymentStatus", "replicas"),
    ("GCEPersistentDiskVolumeSource", "partition"),
    ("IngressClassSpec", "controller"),
    ("PersistentVolumeSpec", "storageClassName"),
    ("Probe", "timeoutSeconds"),
    ("ReplicaSetStatus", "replicas"),
    ("ReplicationControllerStatus", "replicas"),
    ("ScaleSpec", "replicas"),
    ("ScaleStatus", "replicas"),
    ("StatefulSetStatus", "replicas"),
    ("resource.v1beta1.ResourceSliceSpec", "allNodes"),
    ("resource.v1beta1.ResourceSliceSpec", "nodeName"),
];

/// Messages, times, quantities and the like that are held by value, by the field's name.
const STRUCTS: &[&str] = &[
    "acceptedNames",
    "creationTimestamp",
    "current",
    "daemonEndpoints",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "deprecatedSource",
    "describedObject",
    "devices",
    "divisor",
    "eventTime",
    "finishedAt",
    "firstTimestamp",
    "involvedObject",
    "jobTemplate",
    "kubeletEndpoint",
    "lastHeartbeatTime",
    "lastObservedTime",
    "lastProbeTime",
    "lastState",
    "lastTimestamp",
    "lastTransitionTime",
    "lastUpdateTime",
    "limitResponse",
    "loadBalancer",
    "metadata",
    "metric",
    "names",
    "nodeInfo",
    "podAffinityTerm",
    "preference",
    "preferredVersion",
    "regarding",
    "roleRef",
    "scaleTargetRef",
    "source",
    "spec",
    "startedAt",
    "state",
    "status",
    "strategy",
    "target",
    "targetPort",
    "template",
    "updateStrategy",
    "userInfo",
];

/// By value only in these messages.
const STRUCTS_OF: &[(&str, &str)] = &[
    ("Container", "resources"),
    ("ControllerRevision", "data"),
    ("Counter", "value"),
    ("DeviceCapacity", "value"),
    ("DeviceTaintRuleSpec", "taint"),
    ("EphemeralContainerCommon", "resources"),
    ("FlowSchemaSpec", "priorityLevelConfiguration"),
    ("HTTPGetAction", "port"),
    ("HTTPIngressPath", "backend"),
    ("IngressServiceBackend", "port"),
    ("MutatingWebhook", "clientConfig"),
    ("NetworkPolicySpec", "podSelector"),
    ("OpaqueDeviceConfiguration", "parameters"),
    ("PersistentVolumeClaimSpec", "resources"),
    ("ResourceSliceSpec", "pool"),
    ("StorageVersionMigrationSpec", "resource"),
    ("TCPSocketAction", "port"),
    ("TokenRequestStatus", "expirationTimestamp"),
    ("TokenReviewStatus", "user"),
    ("ValidatingWebhook", "clientConfig"),
    ("VolumeError", "time"),
    ("discovery.v1.Endpoint", "conditions"),
];

/// Pointers although their names are among [`STRUCTS`].
const STRUCT_POINTERS: &[(&str, &str)] = &[
    ("ContainerStatus", "user"),
    ("ReplicationControllerSpec", "template"),
    ("ResourcePoolStatusRequest", "status"),
];

/// What is to be known of a message beside its row of the generated table. Bit n is the n-th field.
#[derive(Clone, Copy, Default)]
pub struct Presence {
    /// Written even if the object lacks it.
    pub always: u64,
    /// A zero on the wire is kept in JSON: pointers, and what upstream's JSON never leaves out.
    pub zeros: u64,
}

impl Presence {
    pub fn is_always(self, field: usize) -> bool {
        self.always >> field & 1 == 1
    }

    pub fn keeps_zero(self, field: usize) -> bool {
        self.zeros >> field & 1 == 1
    }
}

/// For every row of the table, in its order.
pub fn of_all(extra: &[Message]) -> Vec<Presence> {
    MESSAGES.iter().chain(extra).map(of).collect()
}

fn of(message: &Message) -> Presence {
    let ty = schema::by_name(message.name);
    let mut presence = Presence::default();
    for (at, field) in message.fields.iter().enumerate() {
        let by_value = is_by_value(message.name, field);
        let required = ty.and_then(|ty| ty.field(field.name)).is_some_and(schema::FieldRef::required);
        presence.always |= u64::from(by_value) << at;
        presence.zeros |= u64::from(!by_value || required) << at;
    }
    presence
}

fn is_by_value(message: &str, field: &Field) -> bool {
    if field.form != Form::One {
        return false;
    }
    match field.kind {
        Kind::Bytes => false,
        // An embedded struct.
        Kind::Message(_) if field.name.is_empty() => true,
        Kind::String | Kind::Int | Kind::Bool | Kind::Double => {
            let pointer = POINTERS.contains(&field.name);
            if pointer { listed(PLAIN, message, field) } else { !listed(POINTERS_OF, message, field) }
        }
        _ => {
            let by_value = STRUCTS.contains(&field.name) && !listed(STRUCT_POINTERS, message, field);
            by_value || listed(STRUCTS_OF, message, field)
        }
    }
}

fn listed(list: &[(&str, &str)], message: &str, field: &Field) -> bool {
    list.iter().any(|(suffix, name)| {
        let head = message.strip_suffix(suffix);
        *name == field.name && head.is_some_and(|head| head.is_empty() || head.ends_with('.'))
    })
}
