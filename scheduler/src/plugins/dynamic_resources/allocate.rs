//! Structured allocation: devices for all requests of a pod's claims on one node, or none (KEP-4381).

use super::devices::{Device, DeviceId};
use super::selector::Selectors;
use crate::framework::Cluster;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;

/// Devices tried for one request of all claims together before an allocation is given up; upstream bounds the time of
/// Filter instead (10 s by default).
const MOST_STEPS: usize = 200_000;

/// One thing that a claim asks for: so many devices that satisfy these.
struct Want<'c> {
    claim: usize,
    /// `request`, or `request/subrequest`.
    name: String,
    request: &'c Value,
    class: Arc<Value>,
    /// `None` for all that match.
    count: Option<usize>,
    admin: bool,
}

/// A device given to a want.
type Choice = (usize, usize);

struct Search<'c, 's> {
    claims: &'c [Arc<Value>],
    devices: &'c [Device],
    taken: &'c HashSet<DeviceId>,
    selectors: &'s mut Selectors,
    steps: usize,
}

fn requests(claim: &Value) -> impl Iterator<Item = &Value> {
    claim["spec"]["devices"]["requests"].as_array().into_iter().flatten()
}

/// Ways to read a claim's requests: a request with alternatives (`firstAvailable`) makes several, the preferred first.
fn alternatives<'c>(
    claims: &'c [Arc<Value>],
    cluster: &dyn Cluster,
) -> Result<Vec<Vec<Vec<Want<'c>>>>, String> {
    let mut all = Vec::new();
    for (index, claim) in claims.iter().enumerate() {
        for request in requests(claim) {
            let name = request["name"].as_str().unwrap_or_default();
            let exactly = &request["exactly"];
            let listed = request["firstAvailable"].as_array();
            let mut ways = Vec::new();
            if exactly.is_object() {
                ways.push(vec![want(index, name.to_owned(), exactly, cluster)?]);
            } else {
                for sub in listed.into_iter().flatten() {
                    let full = format!("{name}/{}", sub["name"].as_str().unwrap_or_default());
                    ways.push(vec![want(index, full, sub, cluster)?]);
                }
            }
            if ways.is_empty() {
                return Err(format!("request {name}: unknown request type"));
            }
            all.push(ways);
        }
    }
    Ok(all)
}

fn want<'c>(
    claim: usize,
    name: String,
    request: &'c Value,
    cluster: &dyn Cluster,
) -> Result<Want<'c>, String> {
    let class_name = request["deviceClassName"].as_str().unwrap_or_default();
    let class = cluster.device_class(class_name);
    let class = class.ok_or_else(|| format!("request {name}: device class {class_name} does not exist"))?;
    if request["capacity"]["requests"].as_object().is_some_and(|r| !r.is_empty()) {
        return Err(format!("request {name}: consumable capacity is not supported"));
    }
    let count = match request["allocationMode"].as_str().unwrap_or("ExactCount") {
        "ExactCount" => {
            let count = request["count"].as_u64().unwrap_or(1);
            Some(usize::try_from(count).unwrap_or(usize::MAX))
        }
        "All" => None,
        other => return Err(format!("request {name}: unsupported allocation mode {other}")),
    };
    Ok(Want { claim, name, request, class, count, admin: request["adminAccess"] == true })
}

fn tolerated(request: &Value, taint: &Value) -> bool {
    let tolerations = request["tolerations"].as_array();
    tolerations.into_iter().flatten().any(|t| {
        let any = |field: &str| t[field].as_str().is_none_or(str::is_empty);
        (any("effect") || t["effect"] == taint["effect"])
            && ((any("key") && t["operator"] == "Exists") || t["key"] == taint["key"])
            && (t["operator"] == "Exists"
                || t["value"].as_str().unwrap_or_default() == taint["value"].as_str().unwrap_or_default())
    })
}

impl<'c> Search<'c, '_> {
    fn suits(&mut self, want: &Want<'_>, device: &Device) -> Result<bool, String> {
        let clean = device.taints().all(|taint| tolerated(want.request, taint));
        Ok(clean
            && self.selectors.match_all(&want.class["spec"]["selectors"], device)?
            && self.selectors.match_all(&want.request["selectors"], device)?)
    }

    fn is_free(&self, want: &Want<'_>, device: usize, chosen: &[(usize, Choice)]) -> bool {
        want.admin
            || (!self.taken.contains(&self.devices[device].id)
                && !chosen.iter().any(|(_, (_, d))| *d == device))
    }

    /// Whether a device may join those chosen for the claim's other requests.
    fn allowed(&self, wants: &[Want<'c>], which: usize, device: usize, chosen: &[(usize, Choice)]) -> bool {
        let want = &wants[which];
        let constraints = self.claims[want.claim]["spec"]["devices"]["constraints"].as_array();
        let main = |name: &str| name.split('/').next().unwrap_or_default().to_owned();
        let covers = |constraint: &Value, name: &str| {
            let named = constraint["requests"].as_array();
            named.is_none_or(|list| {
                list.is_empty() || list.iter().any(|r| *r == *name || *r == main(name).as_str())
            })
        };
        constraints.into_iter().flatten().filter(|c| covers(c, &want.name)).all(|constraint| {
            let (same, distinct) =
                (constraint["matchAttribute"].as_str(), constraint["distinctAttribute"].as_str());
            let Some(attribute) = same.or(distinct) else { return true };
            let Some(own) = self.devices[device].attribute(attribute) else { return false };
            let mut others = chosen
                .iter()
                .filter(|(w, _)| wants[*w].claim == want.claim && covers(constraint, &wants[*w].name));
            others.all(|(_, (_, other))| {
                let theirs = self.devices[*other].attribute(attribute);
                if same.is_some() { theirs == Some(own) } else { theirs != Some(own) }
            })
        })
    }

    /// Devices for the wants from `which` on, `found` of them for the first; true when all are there.
    fn fill(
        &mut self,
        wants: &[Want<'c>],
        which: usize,
        from: usize,
        found: usize,
        chosen: &mut Vec<(usize, Choice)>,
    ) -> Result<bool, String> {
        let Some(want) = wants.get(which) else { return Ok(true) };
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return Err("allocation takes too long".to_owned());
        }
        let Some(count) = want.count else { return self.fill_all(wants, which, chosen) };
        if found == count {
            return self.fill(wants, which + 1, 0, 0, chosen);
        }
        for device in from..self.devices.len() {
            let candidate = self.devices[device].clone();
            if !self.is_free(want, device, chosen)
                || !self.allowed(wants, which, device, chosen)
                || !self.suits(want, &candidate)?
            {
                continue;
            }
            chosen.push((which, (want.claim, device)));
            if self.fill(wants, which, device + 1, found + 1, chosen)? {
                return Ok(true);
            }
            chosen.pop();
        }
        Ok(false)
    }

    /// Every device that matches, and each of them free.
    fn fill_all(
        &mut self,
        wants: &[Want<'c>],
        which: usize,
        chosen: &mut Vec<(usize, Choice)>,
    ) -> Result<bool, String> {
        let (want, before) = (&wants[which], chosen.len());
        for device in 0..self.devices.len() {
            let candidate = self.devices[device].clone();
            if !self.suits(want, &candidate)? {
                continue;
            }
            if !self.is_free(want, device, chosen) || !self.allowed(wants, which, device, chosen) {
                chosen.truncate(before);
                return Ok(false);
            }
            chosen.push((which, (want.claim, device)));
        }
        if chosen.len() > before && self.fill(wants, which + 1, 0, 0, chosen)? {
            return Ok(true);
        }
        chosen.truncate(before);
        Ok(false)
    }
}

/// The allocations of the claims, in their order, for `status.allocation`; `None` when the devices do not suffice.
pub fn allocate(
    claims: &[Arc<Value>],
    devices: &[Device],
    taken: &HashSet<DeviceId>,
    cluster: &dyn Cluster,
    selectors: &mut Selectors,
) -> Result<Option<Vec<Value>>, String> {
    let mut ways = alternatives(claims, cluster)?;
    // Each request keeps its preferred way that leads to an allocation, from the first request on.
    let mut picks = vec![0; ways.len()];
    loop {
        let wants: Vec<Want<'_>> = ways
            .iter_mut()
            .zip(&picks)
            .flat_map(|(way, pick)| way[*pick].iter().map(Want::again).collect::<Vec<_>>())
            .collect();
        let mut search = Search { claims, devices, taken, selectors: &mut *selectors, steps: 0 };
        let mut chosen = Vec::new();
        if search.fill(&wants, 0, 0, 0, &mut chosen)? {
            return Ok(Some(results(claims, devices, &wants, &chosen)));
        }
        // The next combination: the last request's alternatives first.
        let Some(next) = (0..picks.len()).rev().find(|i| picks[*i] + 1 < ways[*i].len()) else {
            return Ok(None);
        };
        picks[next] += 1;
        picks[next + 1..].fill(0);
    }
}

impl Want<'_> {
    fn again(&self) -> Self {
        Self {
            claim: self.claim,
            name: self.name.clone(),
            request: self.request,
            class: self.class.clone(),
            count: self.count,
            admin: self.admin,
        }
    }
}

fn results(
    claims: &[Arc<Value>],
    devices: &[Device],
    wants: &[Want<'_>],
    chosen: &[(usize, Choice)],
) -> Vec<Value> {
    let of = |(index, claim): (usize, &Arc<Value>)| {
        let own = || chosen.iter().filter(move |(_, (c, _))| *c == index);
        let result = |(want, (_, device)): &(usize, Choice)| {
            let (want, id) = (&wants[*want], &devices[*device].id);
            let mut result = json!({
                "request": want.name, "driver": id.driver, "pool": id.pool, "device": id.name,
            });
            if want.admin {
                result["adminAccess"] = json!(true);
            }
            if let Some(tolerations) = want.request["tolerations"].as_array() {
                result["tolerations"] = json!(tolerations);
            }
            result
        };
        let results: Vec<Value> = own().map(result).collect();
        let mut allocation = json!({ "devices": { "results": results } });
        let config = configuration(claim, index, wants);
        if !config.is_empty() {
            allocation["devices"]["config"] = json!(config);
        }
        let places: Vec<Value> =
            own().filter_map(|(_, (_, device))| devices[*device].node_selector()).collect();
        if let Some(selector) = places.first() {
            // All devices of a pod are used on one node, so the narrowest place of any of them holds for all.
            let by_name = places.iter().find(|p| !p["nodeSelectorTerms"][0]["matchFields"].is_null());
            allocation["nodeSelector"] = by_name.unwrap_or(selector).clone();
        }
        allocation
    };
    claims.iter().enumerate().map(of).collect()
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
