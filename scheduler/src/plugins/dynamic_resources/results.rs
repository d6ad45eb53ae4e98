//! Choices in the form of `status.allocation`.

use super::allocate::{Choice, Found};
use super::capacity;
use super::devices::{Device, all_of};
use super::requests::Want;
use serde_json::{Value, json};
use std::sync::Arc;

/// Upstream's most alternatives of one request; the first of them scores so much.
const MOST_ALTERNATIVES: i64 = 8;

impl Found<'_> {
    /// How much the claims' authors like it: the earlier an alternative stands, the better.
    pub fn score(&self, claims: &[Arc<Value>]) -> i64 {
        let requests = claims.iter().flat_map(|c| c["spec"]["devices"]["requests"].as_array()).flatten();
        let listed = requests.zip(&self.picks).filter(|(request, _)| request["firstAvailable"].is_array());
        listed.map(|(_, pick)| MOST_ALTERNATIVES - i64::try_from(*pick).unwrap_or(MOST_ALTERNATIVES)).sum()
    }

    /// The allocations of the claims, in their order; the devices are used on `node`.
    pub fn allocations(&self, claims: &[Arc<Value>], devices: &[Device], node: &str) -> Vec<Value> {
        let of = |(index, claim): (usize, &Arc<Value>)| {
            let own = || self.choices.iter().filter(move |c| self.wants[c.want].claim == index);
            let results: Vec<Value> =
                own().map(|c| result(&self.wants[c.want], &devices[c.device], c)).collect();
            let mut allocation = json!({ "devices": { "results": results } });
            let config = configuration(claim, index, &self.wants);
            if !config.is_empty() {
                allocation["devices"]["config"] = json!(config);
            }
            let places: Vec<Value> =
                own().filter_map(|choice| devices[choice.device].node_selector(node)).collect();
            if let Some(selector) = all_of(&places) {
                allocation["nodeSelector"] = selector;
            }
            allocation
        };
        claims.iter().enumerate().map(of).collect()
    }
}

fn result(want: &Want<'_>, device: &Device, choice: &Choice) -> Value {
    let (id, value) = (&device.id, device.value());
    let mut result = json!({ "request": want.name, "driver": id.driver, "pool": id.pool, "device": id.name });
    if want.admin {
        result["adminAccess"] = json!(true);
    }
    if let Some(tolerations) = want.request["tolerations"].as_array() {
        result["tolerations"] = json!(tolerations);
    }
    if let Some(consumed) = &choice.consumed {
        result["shareID"] = json!(share_id());
        result["consumedCapacity"] = capacity::written(&id.driver, value, consumed);
    }
    for field in ["bindingConditions", "bindingFailureConditions"] {
        if value[field].as_array().is_some_and(|list| !list.is_empty()) {
            result[field] = value[field].clone();
        }
    }
    result
}

/// A random UUID (version 4).
fn share_id() -> String {
    let random = rand::random::<u128>();
    let id = (random & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let text = format!("{id:032x}");
    format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}

/// The configuration that drivers get: of the classes first, then of the claim.
fn configuration(claim: &Value, index: usize, wants: &[Want<'_>]) -> Vec<Value> {
    let mut all = Vec::new();
    for want in wants.iter().filter(|w| w.claim == index) {
        for entry in want.class["spec"]["config"].as_array().into_iter().flatten() {
            let mut entry = entry.clone();
            entry["source"] = json!("FromClass");
            entry["requests"] = json!([want.name]);
            all.push(entry);
        }
    }
    for entry in claim["spec"]["devices"]["config"].as_array().into_iter().flatten() {
        let mut entry = entry.clone();
        entry["source"] = json!("FromClaim");
        all.push(entry);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_uuids() {
        let id = share_id();
        assert_eq!(id.len(), 36);
        assert_eq!(id.as_bytes()[14], b'4');
        assert!("89ab".contains(char::from(id.as_bytes()[19])), "{id}");
        assert_ne!(id, share_id());
    }
}
