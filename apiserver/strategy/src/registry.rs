//! Which strategy a resource has.

use super::plain::Plain;
use super::*;
use coracle_api::catalogue::catalogue;

/// The strategy of a built-in resource. Those without one of their own get [`Plain`].
pub fn for_resource(group: &str, plural: &str) -> &'static dyn Strategy {
    match (group, plural) {
        ("", _) => core(plural),
        ("admissionregistration.k8s.io", _) => admissionregistration(plural),
        ("apiextensions.k8s.io", "customresourcedefinitions") => &apiextensions::CustomResourceDefinitions,
        ("apiregistration.k8s.io", "apiservices") => &apiservices::ApiServices,
        ("apps", "controllerrevisions") => &apps::ControllerRevisions,
        ("apps", "daemonsets") => &apps::DaemonSets,
        ("apps", "deployments") => &apps::Deployments,
        ("apps", "replicasets") => &apps::ReplicaSets,
        ("apps", "statefulsets") => &apps::StatefulSets,
        ("certificates.k8s.io", "certificatesigningrequests") => &certificates::CertificateSigningRequests,
        ("coordination.k8s.io", "leases") => &leases::Leases,
        ("discovery.k8s.io", "endpointslices") => &endpoints::EndpointSlices,
        ("events.k8s.io", "events") => &events::Events,
        ("autoscaling", "horizontalpodautoscalers") => &autoscalers::HorizontalPodAutoscalers,
        ("batch", "cronjobs") => &batch::CronJobs,
        ("batch", "jobs") => &batch::Jobs,
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => &flowcontrol::FlowSchemas,
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => {
            &flowcontrol::PriorityLevelConfigurations
        }
        ("networking.k8s.io", _) => networking(plural),
        ("node.k8s.io", "runtimeclasses") => &podtemplates::RuntimeClasses,
        ("policy", "poddisruptionbudgets") => &disruptionbudgets::PodDisruptionBudgets,
        ("rbac.authorization.k8s.io", _) => rbac(plural),
        ("resource.k8s.io", _) => resource(plural),
        ("scheduling.k8s.io", "priorityclasses") => &priorityclasses::PriorityClasses,
        ("storage.k8s.io", _) => storage(plural),
        _ => plain(group, plural),
    }
}

fn admissionregistration(plural: &str) -> &'static dyn Strategy {
    match plural {
        "mutatingadmissionpolicies" => &admissionregistration::MutatingPolicies,
        "mutatingadmissionpolicybindings" => &admissionregistration::PolicyBindings { mutating: true },
        "mutatingwebhookconfigurations" => &admissionregistration::Webhooks { mutating: true },
        "validatingadmissionpolicies" => &admissionregistration::ValidatingPolicies,
        "validatingadmissionpolicybindings" => &admissionregistration::PolicyBindings { mutating: false },
        "validatingwebhookconfigurations" => &admissionregistration::Webhooks { mutating: false },
        _ => plain("admissionregistration.k8s.io", plural),
    }
}

fn resource(plural: &str) -> &'static dyn Strategy {
    match plural {
        "deviceclasses" => &resource::DeviceClasses,
        "resourceclaims" => &resource::ResourceClaims,
        "resourceclaimtemplates" => &resource::ResourceClaimTemplates,
        "resourceslices" => &resource::ResourceSlices,
        _ => plain("resource.k8s.io", plural),
    }
}

fn networking(plural: &str) -> &'static dyn Strategy {
    match plural {
        "ingressclasses" => &networking::IngressClasses,
        "ingresses" => &networking::Ingresses,
        "ipaddresses" => &networking::IpAddresses,
        "networkpolicies" => &networking::NetworkPolicies,
        "servicecidrs" => &networking::ServiceCidrs,
        _ => plain("networking.k8s.io", plural),
    }
}

fn rbac(plural: &str) -> &'static dyn Strategy {
    match plural {
        "clusterrolebindings" => &rbac::RoleBindings { cluster: true },
        "clusterroles" => &rbac::Roles { cluster: true },
        "rolebindings" => &rbac::RoleBindings { cluster: false },
        "roles" => &rbac::Roles { cluster: false },
        _ => plain("rbac.authorization.k8s.io", plural),
    }
}

fn storage(plural: &str) -> &'static dyn Strategy {
    match plural {
        "csidrivers" => &storage::CsiDrivers,
        "csinodes" => &storage::CsiNodes,
        "csistoragecapacities" => &storage::CsiStorageCapacities,
        "storageclasses" => &storage::StorageClasses,
        "volumeattachments" => &storage::VolumeAttachments,
        "volumeattributesclasses" => &storage::VolumeAttributesClasses,
        _ => plain("storage.k8s.io", plural),
    }
}

fn core(plural: &str) -> &'static dyn Strategy {
    match plural {
        "componentstatuses" => &componentstatuses::ComponentStatuses,
        "configmaps" => &configmaps::ConfigMaps,
        "endpoints" => &endpoints::Endpoints,
        "events" => &events::Events,
        "limitranges" => &quotas::LimitRanges,
        "namespaces" => &namespaces::Namespaces,
        "nodes" => &nodes::Nodes,
        "persistentvolumeclaims" => &claims::PersistentVolumeClaims,
        "persistentvolumes" => &volumes::PersistentVolumes,
        "pods" => &pods::Pods,
        "podtemplates" => &podtemplates::PodTemplates,
        "replicationcontrollers" => &replicationcontrollers::ReplicationControllers,
        "resourcequotas" => &quotas::ResourceQuotas,
        "secrets" => &secrets::Secrets,
        "serviceaccounts" => &serviceaccounts::ServiceAccounts,
        "services" => &services::Services,
        _ => plain("", plural),
    }
}

/// Whether there is a status, the catalogue says.
fn plain(group: &str, plural: &str) -> &'static dyn Strategy {
    let status = catalogue()
        .iter()
        .any(|r| r.group == group && r.plural == plural && r.subresource("status").is_some());
    if status { &Plain { status: true } } else { &Plain { status: false } }
}
