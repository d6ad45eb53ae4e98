//! Addresses of Services and the ranges they come from.

use super::*;
use crate::Facts;
use coracle_api::meta::NameRule;
use std::net::IpAddr;

pub struct IpAddresses;
pub struct ServiceCidrs;

impl ResourceFacts for IpAddresses {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }
}

impl CreateStrategy for IpAddresses {
    /// An address: those of IPv6 have colons. Whether it is one is judged with the spec.
    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let here = Path::root("metadata").field("name");
        rules::ip(name(object), &here, errors);
        let canonical =
            name(object).parse::<IpAddr>().map_or_else(|_| name(object).to_owned(), |ip| ip.to_string());
        if canonical != name(object) {
            errors.invalid(&here, name(object), &format!("must be in canonical form (\"{canonical}\")"));
        }
        let path = Path::root("spec").field("parentRef");
        if !has(object, "spec.parentRef") {
            errors.required(&path, "");
            return;
        }
        let parent = at(object, "spec.parentRef");
        if !str_at(parent, "group").is_empty() {
            rules::subdomain(str_at(parent, "group"), &path.field("group"), errors);
        }
        rules::path_segment(str_at(parent, "resource"), &path.field("resource"), errors);
        rules::path_segment(str_at(parent, "name"), &path.field("name"), errors);
        if !namespace_of(parent).is_empty() {
            rules::path_segment(&namespace_of(parent), &path.field("namespace"), errors);
        }
    }
}

impl UpdateStrategy for IpAddresses {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        rules::immutable(new, old, &["spec.parentRef"], &mut Errors(errors));
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl TableConvertor for IpAddresses {
    fn columns(&self) -> &'static [Column] {
        const { &[table::NAME, table::string("ParentRef", "Who has the address")] }
    }

    fn row(&self, object: &Object, _now: Timestamp) -> Vec<Value> {
        let parent = at(object, "spec.parentRef");
        let (resource, group) = (str_at(parent, "resource"), str_at(parent, "group"));
        let qualified = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        let parts = [qualified.to_lowercase(), namespace_of(parent), str_at(parent, "name").to_owned()];
        let text = parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join("/");
        vec![name(object).into(), table::cell_or_none(&text)]
    }
}

crate::usual!(IpAddresses: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

fn namespace_of(reference: &Value) -> String {
    str_at(reference, "namespace").to_owned()
}

impl ResourceFacts for ServiceCidrs {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for ServiceCidrs {
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
        set(object, "status", json!({}));
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec").field("cidrs");
        let cidrs = at(object, "spec.cidrs");
        match list_at(object, "spec.cidrs").len() {
            0 => return errors.required(&path, "at least one CIDR required"),
            1 | 2 => {}
            _ => {
                let shown = json!({ "CIDRs": cidrs });
                return errors.invalid(&path, shown, "may only hold up to 2 values");
            }
        }
        for (i, cidr) in strings_at(object, "spec.cidrs").enumerate() {
            rules::cidr(cidr, &path.index(i), errors);
        }
        let six = strings_at(object, "spec.cidrs").filter(|cidr| cidr.contains(':')).count();
        if list_at(object, "spec.cidrs").len() == 2 && six != 1 {
            let detail =
                "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
            errors.invalid(&path, cidrs.clone(), detail);
        }
    }
}

impl UpdateStrategy for ServiceCidrs {
    /// A second family may be added, nothing else may change.
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let path = Path::root("spec").field("cidrs");
        let (now, before) = (list_at(new, "spec.cidrs"), list_at(old, "spec.cidrs"));
        let errors = &mut Errors(errors);
        if now.len() != before.len() && (before.len(), now.len()) != (1, 2) {
            return errors.immutable(&path, at(new, "spec.cidrs"), at(old, "spec.cidrs"));
        }
        for (i, (now, before)) in now.iter().zip(before).enumerate() {
            errors.immutable(&path.index(i), now, before);
        }
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl StatusStrategy for ServiceCidrs {
    fn status_keeps_metadata(&self) -> bool {
        true
    }
}

impl TableConvertor for ServiceCidrs {
    fn columns(&self) -> &'static [Column] {
        const { &[table::NAME, table::string("CIDRs", "Ranges of addresses"), table::AGE] }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let cidrs: Vec<&str> = strings_at(object, "spec.cidrs").collect();
        vec![name(object).into(), cidrs.join(",").into(), table::age(object, now)]
    }
}

crate::usual!(ServiceCidrs: DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);
