//! Structured allocation: devices for all requests of a pod's claims on one node, or none (KEP-4381).

use super::capacity::{self, Amounts};
use super::devices::Device;
use super::requests::{Want, alternatives};
use super::selector::CompiledSelectors;
use super::taken::Taken;
use crate::framework::Cluster;
use coracle_api::quantity::Quantity;
use serde_json::Value;
use std::sync::Arc;
use tokio::time::Instant;

/// Devices tried for all claims of a pod on one node before the allocation is given up, whatever its time: one task
/// decides about all pods, which an expensive claim must not hold up for long.
const MOST_STEPS: usize = 200_000;
/// Between two looks at the clock.
const STEPS_BETWEEN_LOOKS: usize = 64;
/// Upstream's words for an allocation that takes too long.
pub const TIMED_OUT: &str = "timed out trying to allocate devices";

/// What there is to choose from.
#[derive(Clone, Copy)]
pub struct AvailableDevices<'o> {
    /// Of one node.
    pub devices: &'o [Device],
    pub taken: &'o Taken,
    /// What is left of the counters that devices draw on.
    pub left: &'o [Quantity],
    /// When the search has to end; `None` for as long as it takes.
    pub until: Option<Instant>,
}

/// A device given to a want.
pub struct Choice {
    pub want: usize,
    pub device: usize,
    /// Of a device that several claims may use: how much of it.
    pub consumed: Option<Amounts>,
    /// Whether the device's counters were charged with it.
    drew: bool,
}

/// Devices for every want.
pub struct Found<'c> {
    pub wants: Vec<Want<'c>>,
    pub choices: Vec<Choice>,
    /// Of each request, which of its alternatives it is.
    pub picks: Vec<usize>,
}

struct Search<'c, 's> {
    claims: &'c [Arc<Value>],
    offer: AvailableDevices<'s>,
    left: Vec<Quantity>,
    selectors: &'s mut CompiledSelectors,
    steps: &'s mut usize,
}

impl<'c> Search<'c, '_> {
    fn suits(&mut self, want: &Want<'_>, device: &Device) -> Result<bool, String> {
        let clean = device.taints().all(|taint| want.tolerates(taint));
        let text =
            |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let class = || format!("class {}", text(&want.class, "name"));
        let own = &self.claims[want.claim];
        let claim = || format!("claim {}/{}", text(own, "namespace"), text(own, "name"));
        Ok(clean
            && self.selectors.match_all(class, &want.class["spec"]["selectors"], device)?
            && self.selectors.match_all(claim, &want.request["selectors"], device)?)
    }

    /// Gives the device to the want if it is free, or as much of it as is asked for.
    fn take(&mut self, wants: &[Want<'c>], which: usize, device: usize, chosen: &[Choice]) -> Option<Choice> {
        let (want, candidate) = (&wants[which], &self.offer.devices[device]);
        let mut choice = Choice { want: which, device, consumed: None, drew: false };
        let same = || chosen.iter().filter(|c| c.device == device);
        if want.admin {
            return (!same().any(|c| wants[c.want].claim == want.claim)).then_some(choice);
        }
        let mut users = same().filter(|c| !wants[c.want].admin).peekable();
        let first = users.peek().is_none() && !self.offer.taken.holds(&candidate.id);
        let (driver, value) = (&candidate.id.driver, candidate.value());
        let amounts = capacity::taken_by(driver, want.request, value)?;
        if candidate.is_shared() && !self.offer.taken.is_whole(&candidate.id) {
            let mut used: Vec<&Amounts> = users.filter_map(|c| c.consumed.as_ref()).collect();
            used.extend(self.offer.taken.share(&candidate.id));
            if !capacity::suffices(driver, value, &used, &amounts) {
                return None;
            }
            choice.consumed = Some(amounts);
        } else if !first || !capacity::suffices(driver, value, &[], &amounts) {
            return None;
        }
        if first {
            choice.drew = true;
            if candidate.draws.iter().any(|(counter, amount)| self.left[*counter] < *amount) {
                return None;
            }
            candidate.draws.iter().for_each(|(counter, amount)| self.left[*counter] -= *amount);
        }
        Some(choice)
    }

    /// Takes choices back until so many are left.
    fn give_back(&mut self, chosen: &mut Vec<Choice>, to: usize) {
        for choice in chosen.drain(to..).filter(|c| c.drew) {
            let draws = &self.offer.devices[choice.device].draws;
            draws.iter().for_each(|(counter, amount)| self.left[*counter] += *amount);
        }
    }

    /// Whether a device may join those chosen for the claim's other requests.
    fn allowed(&self, wants: &[Want<'c>], which: usize, device: usize, chosen: &[Choice]) -> bool {
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
            let Some(own) = self.offer.devices[device].attribute(attribute) else { return false };
            let mut others = chosen
                .iter()
                .filter(|c| wants[c.want].claim == want.claim && covers(constraint, &wants[c.want].name));
            others.all(|other| {
                let theirs = self.offer.devices[other.device].attribute(attribute);
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
        chosen: &mut Vec<Choice>,
    ) -> Result<bool, String> {
        let Some(want) = wants.get(which) else { return Ok(true) };
        *self.steps += 1;
        let late = || self.offer.until.is_some_and(|until| Instant::now() >= until);
        if *self.steps > MOST_STEPS || (self.steps.is_multiple_of(STEPS_BETWEEN_LOOKS) && late()) {
            return Err(TIMED_OUT.to_owned());
        }
        let Some(count) = want.count else { return self.fill_all(wants, which, chosen) };
        if found == count {
            return self.fill(wants, which + 1, 0, 0, chosen);
        }
        for device in from..self.offer.devices.len() {
            if !self.allowed(wants, which, device, chosen)
                || !self.suits(want, &self.offer.devices[device])?
            {
                continue;
            }
            let before = chosen.len();
            let Some(choice) = self.take(wants, which, device, chosen) else { continue };
            chosen.push(choice);
            // A device with room for more may be taken again.
            let next = if self.offer.devices[device].is_shared() { device } else { device + 1 };
            if self.fill(wants, which, next, found + 1, chosen)? {
                return Ok(true);
            }
            self.give_back(chosen, before);
        }
        Ok(false)
    }

    /// Every device that matches, and each of them free.
    fn fill_all(
        &mut self,
        wants: &[Want<'c>],
        which: usize,
        chosen: &mut Vec<Choice>,
    ) -> Result<bool, String> {
        let (want, before) = (&wants[which], chosen.len());
        for device in 0..self.offer.devices.len() {
            if !self.suits(want, &self.offer.devices[device])? {
                continue;
            }
            let allowed = self.allowed(wants, which, device, chosen);
            let choice = if allowed { self.take(wants, which, device, chosen) } else { None };
            let Some(choice) = choice else {
                self.give_back(chosen, before);
                return Ok(false);
            };
            chosen.push(choice);
        }
        if chosen.len() > before && self.fill(wants, which + 1, 0, 0, chosen)? {
            return Ok(true);
        }
        self.give_back(chosen, before);
        Ok(false)
    }
}

/// Devices for the claims; `None` when those of the node do not suffice.
///
/// # Errors
/// [`TIMED_OUT`]; everything else is a fault of a claim or a class, on whatever node it is found.
pub fn allocate<'c>(
    claims: &'c [Arc<Value>],
    offer: AvailableDevices<'_>,
    cluster: &dyn Cluster,
    selectors: &mut CompiledSelectors,
) -> Result<Option<Found<'c>>, String> {
    let ways = alternatives(claims, cluster)?;
    let mut steps = 0;
    // Each request keeps its preferred way that leads to an allocation, from the first request on.
    let mut picks = vec![0; ways.len()];
    loop {
        let wants: Vec<Want<'_>> = ways.iter().zip(&picks).map(|(way, pick)| way[*pick].clone()).collect();
        let left = offer.left.to_vec();
        let mut search = Search { claims, offer, left, selectors: &mut *selectors, steps: &mut steps };
        let mut choices = Vec::new();
        if search.fill(&wants, 0, 0, 0, &mut choices)? {
            return Ok(Some(Found { wants, choices, picks }));
        }
        // The next combination: the last request's alternatives first.
        let Some(next) = (0..picks.len()).rev().find(|i| picks[*i] + 1 < ways[*i].len()) else {
            return Ok(None);
        };
        picks[next] += 1;
        picks[next + 1..].fill(0);
    }
}
