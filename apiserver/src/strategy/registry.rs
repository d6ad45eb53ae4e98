//! Which strategy a resource has.

use super::Strategy;
use super::plain::Plain;
use super::pods::Pods;

/// The strategy of a built-in resource. Those without one of their own get [`Plain`].
pub fn for_resource(group: &str, plural: &str) -> &'static dyn Strategy {
    match (group, plural) {
        ("", _) => core(plural),
        _ => plain(group, plural),
    }
}

fn core(plural: &str) -> &'static dyn Strategy {
    match plural {
        "pods" => &Pods,
        _ => plain("", plural),
    }
}

/// Resources that upstream serves with `<plural>/status` and that have no strategy here yet.
fn plain(group: &str, plural: &str) -> &'static dyn Strategy {
    match (group, plural) {
        (
            "admissionregistration.k8s.io" | "flowcontrol.apiserver.k8s.io",
            "validatingadmissionpolicies" | "flowschemas" | "prioritylevelconfigurations",
        )
        | ("apiextensions.k8s.io" | "apiregistration.k8s.io", _) => &Plain { status: true, generation: true },
        ("certificates.k8s.io", "certificatesigningrequests")
        | ("resource.k8s.io", "resourceclaims")
        | ("internal.apiserver.k8s.io", "storageversions")
        | ("storagemigration.k8s.io", "storageversionmigrations") => {
            &Plain { status: true, generation: false }
        }
        ("admissionregistration.k8s.io", _) => &Plain { status: false, generation: true },
        _ => &Plain { status: false, generation: false },
    }
}
