//! Which families a Service has addresses of: what it asks for, what the cluster has, and what it had before.
//!
//! Upstream settles this before it allocates and validates (KEP-563). An update goes from one family to two, or back, only
//! where its policy or its lists say so; a cluster that becomes dual-stack changes no Service by itself.

use super::*;

pub const NAMES: &[&str] = &["IPv4", "IPv6"];

/// The families of a cluster's Services, the one that Services get unasked first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configured(pub Vec<&'static str>);

impl Configured {
    fn first(&self) -> &'static str {
        self.0.first().copied().unwrap_or("IPv4")
    }

    fn has(&self, family: &str) -> bool {
        self.0.contains(&family)
    }
}

/// The family of an address that is written as text.
pub fn of(ip: &str) -> &'static str {
    if ip.contains(':') { "IPv6" } else { "IPv4" }
}

fn other(family: &str) -> &'static str {
    if family == "IPv6" { "IPv4" } else { "IPv6" }
}

/// Fills in `ipFamilyPolicy` and `ipFamilies`, and shortens the lists where an update goes back to one family. Says what
/// cannot be; the Service is then left as far as it was clear. Once settled, it stays the same.
pub fn settle(service: &mut Object, old: Option<&Object>, cluster: &Configured) -> Vec<FieldError> {
    let mut found = Vec::new();
    if !needs_cluster_ip(service) || old.is_some_and(|old| is_as_preferred(service, old)) {
        return found;
    }
    policy(service, old);
    validate::addresses(service, &mut Errors(&mut found));
    if !found.is_empty() {
        return found;
    }
    let mut settled = service.clone();
    let errors = &mut Errors(&mut found);
    if let Some(old) = old {
        follow(&mut settled, old, errors);
    }
    fits_policy(&settled, errors);
    infer(&mut settled, cluster, errors);
    if errors.0.is_empty() && !is_open(&settled) {
        possible(&settled, cluster, errors);
    }
    if errors.0.is_empty() {
        complete(&mut settled, cluster);
        *service = settled;
    }
    found
}

/// Whose endpoints somebody else keeps: they may be of any family.
fn is_open(service: &Object) -> bool {
    is_headless(service) && entries_at(service, "spec.selector").next().is_none()
}

fn said<'a>(service: &'a Object, field: &str) -> Vec<&'a str> {
    strings_at(&service["spec"], field).collect()
}

fn same(new: &Object, old: &Object, field: &str) -> bool {
    said(new, field) == said(old, field)
}

/// One that prefers two families keeps what it got, whatever the cluster has since become.
fn is_as_preferred(new: &Object, old: &Object) -> bool {
    let prefers = |service: &Object| str_at(service, "spec.ipFamilyPolicy") == "PreferDualStack";
    kind(new) == kind(old)
        && prefers(new)
        && (prefers(old) || !has(old, "spec.ipFamilyPolicy"))
        && same(new, old, "clusterIPs")
        && same(new, old, "ipFamilies")
}

fn policy(service: &mut Object, old: Option<&Object>) {
    let before = old.map(|old| str_at(old, "spec.ipFamilyPolicy")).unwrap_or_default();
    let policy = match before {
        "" if is_open(service) => "RequireDualStack",
        "" => "SingleStack",
        before => before,
    };
    if let Some(spec) = at_mut(service, "spec") {
        default_str(spec, "ipFamilyPolicy", policy);
    }
}

fn is_single(service: &Object) -> bool {
    str_at(service, "spec.ipFamilyPolicy") == "SingleStack"
}

fn refuse_policy(service: &Object, detail: &str, errors: &mut Errors) {
    let path = Path::root("spec").field("ipFamilyPolicy");
    errors.invalid(&path, at(service, "spec.ipFamilyPolicy").clone(), detail);
}

/// The policy alone is enough to give the second family back; the lists alone are not.
fn follow(new: &mut Object, old: &Object, errors: &mut Errors) {
    for (field, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let (now, before) = (said(new, field).len(), said(old, field).len());
        if is_single(new) && same(new, old, field) && now > 1 {
            let first = list_at(&new["spec"], field)[..1].to_vec();
            if let Some(spec) = at_mut(new, "spec") {
                set(spec, field, first);
            }
        } else if !is_single(new) && now > 0 && now < before {
            refuse_policy(new, &format!("must be 'SingleStack' to release the secondary {what}"), errors);
        }
    }
}

fn fits_policy(service: &Object, errors: &mut Errors) {
    for (field, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if is_single(service) && list_at(&service["spec"], field).len() == 2 {
            let detail =
                format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            refuse_policy(service, &detail, errors);
        }
    }
}

/// Addresses that were chosen say their families.
fn infer(service: &mut Object, cluster: &Configured, errors: &mut Errors) {
    if is_headless(service) {
        return;
    }
    let mut families: Vec<Value> = list_at(service, "spec.ipFamilies").to_vec();
    for (i, ip) in said(service, "clusterIPs").into_iter().enumerate().skip(families.len()) {
        if cluster.has(of(ip)) {
            families.push(of(ip).into());
        } else {
            let detail = format!("{} is not configured on this cluster", of(ip));
            let path = Path::root("spec").field("clusterIPs").index(i);
            errors.invalid(&path, at(service, "spec.clusterIPs").clone(), &detail);
        }
    }
    set_families(service, families);
}

/// What the cluster cannot do.
fn possible(service: &Object, cluster: &Configured, errors: &mut Errors) {
    if str_at(service, "spec.ipFamilyPolicy") == "RequireDualStack" && cluster.0.len() < 2 {
        refuse_policy(service, "this cluster is not configured for dual-stack services", errors);
    }
    for (i, family) in said(service, "ipFamilies").into_iter().enumerate() {
        if !cluster.has(family) {
            let path = Path::root("spec").field("ipFamilies").index(i);
            errors.invalid(&path, family, "not configured on this cluster");
        }
    }
}

fn complete(service: &mut Object, cluster: &Configured) {
    let mut families: Vec<Value> = list_at(service, "spec.ipFamilies").to_vec();
    if families.is_empty() {
        families.push(cluster.first().into());
    }
    let two = !is_single(service) && (is_open(service) || cluster.0.len() == 2);
    if let ([only], true) = (families.as_slice(), two) {
        let second = other(only.as_str().unwrap_or_default());
        families.push(second.into());
    }
    set_families(service, families);
}

fn set_families(service: &mut Object, families: Vec<Value>) {
    if let Some(spec) = at_mut(service, "spec").filter(|_| !families.is_empty()) {
        set(spec, "ipFamilies", families);
    }
}
