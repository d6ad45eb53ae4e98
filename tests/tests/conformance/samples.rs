//! One object of every built-in resource.

/// What [`crate::operations`] needs to know of a resource.
pub struct Sample {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    /// The object without kind, labels and (mostly) name; `@` stands for its number.
    pub json: &'static str,
    /// What a patch of its status writes; empty where it has no such subresource.
    pub status: &'static str,
}

const fn global(
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    json: &'static str,
    status: &'static str,
) -> Sample {
    Sample { group, version: "v1", plural, kind, namespaced: false, json, status }
}

const fn local(
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
    json: &'static str,
    status: &'static str,
) -> Sample {
    Sample { group, version: "v1", plural, kind, namespaced: true, json, status }
}

/// A condition that no controller knows, for patches of status.
const CONDITION: &str = r#"{"conditions":[{"type":"Conformance","status":"True","reason":"Tried","message":"","lastTransitionTime":"2024-01-01T00:00:00Z"}]}"#;

const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const NETWORK: &str = "networking.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const DRA: &str = "resource.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";

/// A request for CN=conformance, made by `openssl req`; nobody has its key any more.
pub const REQUEST: &str = r#"{"spec":{"request":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIUU1IZ0NBUUF3RmpFVU1CSUdBMVVFQXd3TFkyOXVabTl5YldGdVkyVXdXVEFUQmdjcWhrak9QUUlCQmdncQpoa2pPUFFNQkJ3TkNBQVQxcmF1SlhKUkEzb3Q3NmFFZkxzbTh1bVU3WkhHa2ZJWWZYUkZHeFJId1NNR1dKOUZOClBKcEVqeVVUb1lCSzM1bEN6Wi9OMjZndmVIYi83WURFc0kyZm9BQXdDZ1lJS29aSXpqMEVBd0lEU0FBd1JRSWcKWGFROUptNlIvUWpXVElEMGpmVnV0OGRmbUx2cXJkTlZlSHlkWmxrNDNINENJUURuQzN2MHUvbVNRNGhhTVNGdAoydXJ6U3dpVlZocitzUUl1SXpJTmdZTkhUdz09Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=","signerName":"example.com/signer","usages":["client auth"]}}"#;

pub const SAMPLES: &[Sample] = &[
    local("", "configmaps", "ConfigMap", r#"{"data":{"a":"1"},"binaryData":{"b":"AAE="}}"#, ""),
    local("", "secrets", "Secret", r#"{"stringData":{"a":"1"},"type":"Opaque"}"#, ""),
    local("", "serviceaccounts", "ServiceAccount", r#"{"automountServiceAccountToken":false}"#, ""),
    local(
        "",
        "services",
        "Service",
        r#"{"spec":{"selector":{"app":"x@"},"ports":[{"port":80}]}}"#,
        r#"{"loadBalancer":{}}"#,
    ),
    local(
        "",
        "endpoints",
        "Endpoints",
        r#"{"subsets":[{"addresses":[{"ip":"10.9.9.@"}],"ports":[{"port":80}]}]}"#,
        "",
    ),
    local(
        "",
        "pods",
        "Pod",
        r#"{"spec":{"schedulerName":"nobody","containers":[{"name":"c","image":"nginx"}]}}"#,
        r#"{"message":"by hand"}"#,
    ),
    local(
        "",
        "podtemplates",
        "PodTemplate",
        r#"{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"nginx"}]}}}"#,
        "",
    ),
    local(
        "",
        "replicationcontrollers",
        "ReplicationController",
        r#"{"spec":{"replicas":0,"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"nginx"}]}}}}"#,
        CONDITION,
    ),
    local("", "limitranges", "LimitRange", r#"{"spec":{"limits":[{"type":"Pod","max":{"cpu":"64"}}]}}"#, ""),
    local(
        "",
        "resourcequotas",
        "ResourceQuota",
        r#"{"spec":{"hard":{"pods":"100"}}}"#,
        r#"{"hard":{"pods":"100"}}"#,
    ),
    local(
        "",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        r#"{"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"","volumeName":"none-@","resources":{"requests":{"storage":"1Gi"}}}}"#,
        CONDITION,
    ),
    local(
        "",
        "events",
        "Event",
        r#"{"involvedObject":{"kind":"Pod","namespace":"operations","name":"p"},"reason":"Tried","message":"m","type":"Normal","source":{"component":"conformance"}}"#,
        "",
    ),
    global("", "namespaces", "Namespace", "{}", CONDITION),
    global(
        "",
        "nodes",
        "Node",
        r#"{"spec":{"unschedulable":true}}"#,
        r#"{"capacity":{"example.com/thing":"3"}}"#,
    ),
    global(
        "",
        "persistentvolumes",
        "PersistentVolume",
        r#"{"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"persistentVolumeReclaimPolicy":"Retain","storageClassName":"none","hostPath":{"path":"/tmp/@"}}}"#,
        r#"{"message":"by hand"}"#,
    ),
    global(
        ADMISSION,
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
        r#"{"webhooks":[{"name":"w.example.com","sideEffects":"None","admissionReviewVersions":["v1"],"failurePolicy":"Ignore","clientConfig":{"url":"https://127.0.0.1:1/"},"rules":[{"apiGroups":["example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["things"]}]}]}"#,
        "",
    ),
    global(
        ADMISSION,
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        r#"{"webhooks":[{"name":"w.example.com","sideEffects":"None","admissionReviewVersions":["v1"],"failurePolicy":"Ignore","clientConfig":{"url":"https://127.0.0.1:1/"},"rules":[{"apiGroups":["example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["things"]}]}]}"#,
        "",
    ),
    global(
        ADMISSION,
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        r#"{"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["things"]}]},"validations":[{"expression":"object.metadata.name != 'x'"}]}}"#,
        CONDITION,
    ),
    global(
        ADMISSION,
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        r#"{"spec":{"policyName":"nothing","validationActions":["Deny"]}}"#,
        "",
    ),
    global(
        ADMISSION,
        "mutatingadmissionpolicies",
        "MutatingAdmissionPolicy",
        r#"{"spec":{"reinvocationPolicy":"Never","matchConstraints":{"resourceRules":[{"apiGroups":["example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["things"]}]},"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: \"add\", path: \"/metadata/labels/x\", value: \"y\"}]"}}]}}"#,
        "",
    ),
    global(
        ADMISSION,
        "mutatingadmissionpolicybindings",
        "MutatingAdmissionPolicyBinding",
        r#"{"spec":{"policyName":"nothing"}}"#,
        "",
    ),
    global(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        r#"{"metadata":{"name":"things@.conformance.example"},"spec":{"group":"conformance.example","scope":"Namespaced","names":{"plural":"things@","singular":"thing@","kind":"Thing@","listKind":"Thing@List"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#,
        CONDITION,
    ),
    global(
        "apiregistration.k8s.io",
        "apiservices",
        "APIService",
        r#"{"metadata":{"name":"v@.nothing.example"},"spec":{"group":"nothing.example","version":"v@","groupPriorityMinimum":100,"versionPriority":1,"insecureSkipTLSVerify":true,"service":{"name":"none","namespace":"operations"}}}"#,
        CONDITION,
    ),
    local(
        "apps",
        "deployments",
        "Deployment",
        r#"{"spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"nginx"}]}}}}"#,
        CONDITION,
    ),
    local(
        "apps",
        "replicasets",
        "ReplicaSet",
        r#"{"spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"nginx"}]}}}}"#,
        CONDITION,
    ),
    local(
        "apps",
        "statefulsets",
        "StatefulSet",
        r#"{"spec":{"replicas":0,"serviceName":"s","selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"nginx"}]}}}}"#,
        CONDITION,
    ),
    local(
        "apps",
        "daemonsets",
        "DaemonSet",
        r#"{"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"nodeSelector":{"no":"where"},"containers":[{"name":"c","image":"nginx"}]}}}}"#,
        CONDITION,
    ),
    local(
        "apps",
        "controllerrevisions",
        "ControllerRevision",
        r#"{"revision":1,"data":{"spec":{"a":"b"}}}"#,
        "",
    ),
    Sample {
        group: "autoscaling",
        version: "v2",
        plural: "horizontalpodautoscalers",
        kind: "HorizontalPodAutoscaler",
        namespaced: true,
        json: r#"{"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"none"},"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}]}}"#,
        status: r#"{"desiredReplicas":1,"currentReplicas":1}"#,
    },
    local(
        "autoscaling",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        r#"{"spec":{"maxReplicas":3,"targetCPUUtilizationPercentage":50,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"none"}}}"#,
        r#"{"desiredReplicas":1,"currentReplicas":1}"#,
    ),
    local(
        "batch",
        "jobs",
        "Job",
        r#"{"spec":{"suspend":true,"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"busybox"}]}}}}"#,
        r#"{"conditions":[{"type":"Conformance","status":"True"}]}"#,
    ),
    local(
        "batch",
        "cronjobs",
        "CronJob",
        r#"{"spec":{"schedule":"0 0 1 1 *","suspend":true,"jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"busybox"}]}}}}}}"#,
        r#"{"lastScheduleTime":"2024-01-01T00:00:00Z"}"#,
    ),
    global(
        "certificates.k8s.io",
        "certificatesigningrequests",
        "CertificateSigningRequest",
        REQUEST,
        r#"{"certificate":null}"#,
    ),
    local(
        "coordination.k8s.io",
        "leases",
        "Lease",
        r#"{"spec":{"holderIdentity":"h","leaseDurationSeconds":30}}"#,
        "",
    ),
    local(
        "discovery.k8s.io",
        "endpointslices",
        "EndpointSlice",
        r#"{"addressType":"IPv4","endpoints":[{"addresses":["10.9.9.@"]}],"ports":[{"name":"p","port":80}]}"#,
        "",
    ),
    local(
        "events.k8s.io",
        "events",
        "Event",
        r#"{"eventTime":"2024-01-01T00:00:00.000001Z","reportingController":"example.com/c","reportingInstance":"i","action":"Do","reason":"Tried","type":"Normal","note":"n","regarding":{"kind":"Pod","namespace":"operations","name":"p"}}"#,
        "",
    ),
    global(
        FLOW,
        "flowschemas",
        "FlowSchema",
        r#"{"spec":{"matchingPrecedence":999@,"priorityLevelConfiguration":{"name":"global-default"},"rules":[{"subjects":[{"kind":"User","user":{"name":"conformance"}}],"nonResourceRules":[{"verbs":["get"],"nonResourceURLs":["/conformance"]}]}]}}"#,
        r#"{"conditions":[{"type":"Conformance","status":"True","reason":"Tried","message":"m"}]}"#,
    ),
    global(
        FLOW,
        "prioritylevelconfigurations",
        "PriorityLevelConfiguration",
        r#"{"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":2,"limitResponse":{"type":"Reject"}}}}"#,
        r#"{"conditions":[{"type":"Conformance","status":"True","reason":"Tried","message":"m"}]}"#,
    ),
    local(
        NETWORK,
        "ingresses",
        "Ingress",
        r#"{"spec":{"defaultBackend":{"service":{"name":"s","port":{"number":80}}}}}"#,
        r#"{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}"#,
    ),
    global(NETWORK, "ingressclasses", "IngressClass", r#"{"spec":{"controller":"example.com/c"}}"#, ""),
    local(NETWORK, "networkpolicies", "NetworkPolicy", r#"{"spec":{"podSelector":{}}}"#, ""),
    global(
        NETWORK,
        "ipaddresses",
        "IPAddress",
        r#"{"metadata":{"name":"2001:db8::f@"},"spec":{"parentRef":{"resource":"services","namespace":"default","name":"none"}}}"#,
        "",
    ),
    global(NETWORK, "servicecidrs", "ServiceCIDR", r#"{"spec":{"cidrs":["198.51.@.0/24"]}}"#, CONDITION),
    global("node.k8s.io", "runtimeclasses", "RuntimeClass", r#"{"handler":"h@"}"#, ""),
    local(
        "policy",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        r#"{"spec":{"minAvailable":1,"selector":{"matchLabels":{"a":"b"}}}}"#,
        r#"{"observedGeneration":1}"#,
    ),
    local(
        RBAC,
        "roles",
        "Role",
        r#"{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}"#,
        "",
    ),
    local(
        RBAC,
        "rolebindings",
        "RoleBinding",
        r#"{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"nobody"}]}"#,
        "",
    ),
    global(
        RBAC,
        "clusterroles",
        "ClusterRole",
        r#"{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}"#,
        "",
    ),
    global(
        RBAC,
        "clusterrolebindings",
        "ClusterRoleBinding",
        r#"{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"nobody"}]}"#,
        "",
    ),
    global(
        DRA,
        "deviceclasses",
        "DeviceClass",
        r#"{"spec":{"selectors":[{"cel":{"expression":"device.driver == 'd'"}}]}}"#,
        "",
    ),
    local(
        DRA,
        "resourceclaims",
        "ResourceClaim",
        r#"{"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"}}]}}}"#,
        r#"{"devices":null}"#,
    ),
    local(
        DRA,
        "resourceclaimtemplates",
        "ResourceClaimTemplate",
        r#"{"spec":{"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"}}]}}}}"#,
        "",
    ),
    global(
        DRA,
        "resourceslices",
        "ResourceSlice",
        r#"{"spec":{"driver":"d.example.com","nodeName":"sim-0","pool":{"name":"p@","generation":1,"resourceSliceCount":1},"devices":[{"name":"dev"}]}}"#,
        "",
    ),
    global("scheduling.k8s.io", "priorityclasses", "PriorityClass", r#"{"value":10@}"#, ""),
    global(STORAGE, "csidrivers", "CSIDriver", r#"{"spec":{"attachRequired":false}}"#, ""),
    global(
        STORAGE,
        "csinodes",
        "CSINode",
        r#"{"spec":{"drivers":[{"name":"d.example.com","nodeID":"n"}]}}"#,
        "",
    ),
    local(
        STORAGE,
        "csistoragecapacities",
        "CSIStorageCapacity",
        r#"{"storageClassName":"none","capacity":"1Gi","nodeTopology":{}}"#,
        "",
    ),
    global(STORAGE, "storageclasses", "StorageClass", r#"{"provisioner":"example.com/p"}"#, ""),
    global(
        STORAGE,
        "volumeattachments",
        "VolumeAttachment",
        r#"{"spec":{"attacher":"example.com","nodeName":"sim-0","source":{"persistentVolumeName":"none"}}}"#,
        r#"{"attached":false}"#,
    ),
    global(
        STORAGE,
        "volumeattributesclasses",
        "VolumeAttributesClass",
        r#"{"driverName":"d.example.com","parameters":{"a":"b"}}"#,
        "",
    ),
];
