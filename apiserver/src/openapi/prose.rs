//! The descriptions of types and fields.
//!
//! They are k8s-openapi's: its types carry them, made into values only when asked. The schema facts hold none.

use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use k8s_openapi::schemars::SchemaGenerator;
use serde_json::{Map, Value};

/// Descriptions by the full name of the type, such as `io.k8s.api.core.v1.PodSpec`.
pub struct Prose(Map<String, Value>);

macro_rules! add {
    ($generator:ident, $group:ident::$version:ident: $($kind:ident),+) => {
        {$( $generator.subschema_for::<api::$group::$version::$kind>(); )+}
    };
}

impl Prose {
    /// Of everything that the objects of these groups and versions contain. Others stay without descriptions.
    pub fn of<'a>(group_versions: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut generator = SchemaGenerator::default();
        generator.subschema_for::<meta::v1::DeleteOptions>();
        generator.subschema_for::<meta::v1::Status>();
        for (group, version) in group_versions {
            add_group_version(&mut generator, group, version);
        }
        Self(generator.take_definitions(false))
    }

    pub fn of_type(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.get("description")?.as_str()
    }

    pub fn of_field(&self, name: &str, field: &str) -> Option<&str> {
        self.0.get(name)?.get("properties")?.get(field)?.get("description")?.as_str()
    }
}

fn add_group_version(generator: &mut SchemaGenerator, group: &str, version: &str) {
    match (group, version) {
        ("admissionregistration.k8s.io", "v1") => {
            add!(generator, admissionregistration::v1: MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration)
        }
        ("apiextensions.k8s.io", "v1") => {
            generator.subschema_for::<CustomResourceDefinition>();
        }
        ("apiregistration.k8s.io", "v1") => {
            generator.subschema_for::<APIService>();
        }
        ("apps", "v1") => {
            add!(generator, apps::v1: ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet)
        }
        ("authentication.k8s.io", "v1") => {
            add!(generator, authentication::v1: SelfSubjectReview, TokenRequest, TokenReview)
        }
        ("authorization.k8s.io", "v1") => {
            add!(generator, authorization::v1: LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview)
        }
        ("autoscaling", "v1") => add!(generator, autoscaling::v1: HorizontalPodAutoscaler, Scale),
        ("autoscaling", "v2") => add!(generator, autoscaling::v2: HorizontalPodAutoscaler),
        ("batch", "v1") => add!(generator, batch::v1: CronJob, Job),
        ("certificates.k8s.io", "v1") => add!(generator, certificates::v1: CertificateSigningRequest),
        ("coordination.k8s.io", "v1") => add!(generator, coordination::v1: Lease),
        ("", "v1") => {
            add!(generator, core::v1: Binding, ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate, ReplicationController, ResourceQuota, Secret, Service, ServiceAccount)
        }
        ("discovery.k8s.io", "v1") => add!(generator, discovery::v1: EndpointSlice),
        ("events.k8s.io", "v1") => add!(generator, events::v1: Event),
        ("flowcontrol.apiserver.k8s.io", "v1") => {
            add!(generator, flowcontrol::v1: FlowSchema, PriorityLevelConfiguration)
        }
        ("networking.k8s.io", "v1") => {
            add!(generator, networking::v1: IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR)
        }
        ("node.k8s.io", "v1") => add!(generator, node::v1: RuntimeClass),
        ("policy", "v1") => add!(generator, policy::v1: Eviction, PodDisruptionBudget),
        ("rbac.authorization.k8s.io", "v1") => {
            add!(generator, rbac::v1: ClusterRole, ClusterRoleBinding, Role, RoleBinding)
        }
        ("resource.k8s.io", "v1") => {
            add!(generator, resource::v1: DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice)
        }
        ("scheduling.k8s.io", "v1") => add!(generator, scheduling::v1: PriorityClass),
        ("storage.k8s.io", "v1") => {
            add!(generator, storage::v1: CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass)
        }
        _ => {}
    }
}
