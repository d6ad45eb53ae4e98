//! Writes the descriptions of the built-in types and their fields to `$OUT_DIR/prose`, deflated.
//!
//! They are k8s-openapi's own, taken from its JSON schemas here so that the program carries neither the code that makes
//! those nor its text uncompressed. Lines of `type<TAB>description` and `type field<TAB>description`, sorted; a line
//! break inside a description is the character U+0001.

use flate2::{Compression, write::DeflateEncoder};
use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use k8s_openapi::schemars::SchemaGenerator;
use serde_json::Value;
use std::io::Write;

macro_rules! add {
    ($generator:ident, $group:ident::$version:ident: $($kind:ident),+) => {
        {$( $generator.subschema_for::<api::$group::$version::$kind>(); )+}
    };
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let mut generator = SchemaGenerator::default();
    add_kinds(&mut generator);
    let definitions = generator.take_definitions(false);
    let mut lines: Vec<String> =
        definitions.iter().flat_map(|(name, schema)| describe(name, schema)).collect();
    lines.sort_unstable();
    let path = std::path::Path::new(&std::env::var("OUT_DIR")?).join("prose");
    let mut file = DeflateEncoder::new(std::fs::File::create(path)?, Compression::best());
    lines.iter().try_for_each(|line| writeln!(file, "{line}"))?;
    file.finish()?;
    Ok(())
}

fn describe(name: &str, schema: &Value) -> Vec<String> {
    let whole = schema["description"].as_str().map(|text| (name.to_owned(), text));
    let fields = schema["properties"].as_object().into_iter().flatten();
    let fields =
        fields.filter_map(|(field, of)| Some((format!("{name} {field}"), of["description"].as_str()?)));
    whole
        .into_iter()
        .chain(fields)
        .map(|(key, text)| format!("{key}\t{}", text.replace('\n', "\u{1}")))
        .collect()
}

fn add_kinds(generator: &mut SchemaGenerator) {
    generator.subschema_for::<meta::v1::DeleteOptions>();
    generator.subschema_for::<meta::v1::Status>();
    generator.subschema_for::<CustomResourceDefinition>();
    generator.subschema_for::<APIService>();
    add!(generator, admissionregistration::v1: MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration);
    add!(generator, apps::v1: ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet);
    add!(generator, authentication::v1: SelfSubjectReview, TokenRequest, TokenReview);
    add!(generator, authorization::v1: LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview);
    add!(generator, autoscaling::v1: HorizontalPodAutoscaler, Scale);
    add!(generator, autoscaling::v2: HorizontalPodAutoscaler);
    add!(generator, batch::v1: CronJob, Job);
    add!(generator, certificates::v1: CertificateSigningRequest);
    add!(generator, coordination::v1: Lease);
    add!(generator, core::v1: Binding, ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate, ReplicationController, ResourceQuota, Secret, Service, ServiceAccount);
    add!(generator, discovery::v1: EndpointSlice);
    add!(generator, events::v1: Event);
    add!(generator, flowcontrol::v1: FlowSchema, PriorityLevelConfiguration);
    add!(generator, networking::v1: IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR);
    add!(generator, node::v1: RuntimeClass);
    add!(generator, policy::v1: Eviction, PodDisruptionBudget);
    add!(generator, rbac::v1: ClusterRole, ClusterRoleBinding, Role, RoleBinding);
    add!(generator, resource::v1: DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice);
    add!(generator, scheduling::v1: PriorityClass);
    add!(generator, storage::v1: CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass);
}
