//! What drivers say of their devices' health, and for how long it holds.

use super::messages::{DeviceHealth, HealthStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// How long a word holds whose driver does not say; upstream's.
const DEFAULT_HEALTH_TTL: Duration = Duration::from_secs(30);
/// What a status may hold of a driver's message.
const MESSAGE_BYTES: usize = 1024;

/// Pool and name.
pub type Device = (String, String);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    health: HealthStatus,
    message: String,
    holds: Duration,
    at: Instant,
}

/// By driver and device.
#[derive(Debug, Default)]
pub struct Health(BTreeMap<String, BTreeMap<Device, Said>>);

impl Health {
    /// Takes over a driver's whole list. Returns devices of which something else is said now. One that is not in the list
    /// keeps what was said of it until that does not hold any more.
    pub fn update(&mut self, driver: &str, list: Vec<DeviceHealth>, now: Instant) -> BTreeSet<Device> {
        let known = self.0.entry(driver.to_owned()).or_default();
        let mut changed = BTreeSet::new();
        for told in list {
            let Some(id) = told.device.clone() else { continue };
            let said = Said {
                health: told.health(),
                holds: u64::try_from(told.health_check_timeout_seconds)
                    .ok()
                    .filter(|seconds| *seconds > 0)
                    .map_or(DEFAULT_HEALTH_TTL, Duration::from_secs),
                message: shortened(told.message),
                at: now,
            };
            let device = (id.pool_name, id.device_name);
            let same = known.get(&device).is_some_and(|old| Said { at: now, ..old.clone() } == said);
            known.insert(device.clone(), said);
            if !same {
                changed.insert(device);
            }
        }
        changed
    }

    /// Devices whose health is not known any more; they are told once.
    pub fn expire(&mut self, driver: &str, now: Instant) -> BTreeSet<Device> {
        let mut expired = BTreeSet::new();
        for (device, said) in self.0.get_mut(driver).into_iter().flatten() {
            if said.health != HealthStatus::Unknown && said.at + said.holds <= now {
                (said.health, said.message) = (HealthStatus::Unknown, String::new());
                expired.insert(device.clone());
            }
        }
        expired
    }

    /// When the next word does not hold any more.
    pub fn next(&self, driver: &str) -> Option<Instant> {
        let all = self.0.get(driver).into_iter().flat_map(BTreeMap::values);
        all.filter(|said| said.health != HealthStatus::Unknown).map(|said| said.at + said.holds).min()
    }

    /// Nothing is known of the driver's devices any more.
    pub fn forget(&mut self, driver: &str) -> BTreeSet<Device> {
        self.0.remove(driver).unwrap_or_default().into_keys().collect()
    }

    /// In the words of a pod's status, with the driver's own.
    pub fn of(&self, driver: &str, device: &Device) -> (&'static str, Option<String>) {
        let said = self.0.get(driver).and_then(|devices| devices.get(device));
        let message = said.map(|said| said.message.clone()).filter(|message| !message.is_empty());
        let word = match said.map(|said| said.health) {
            Some(HealthStatus::Healthy) => "Healthy",
            Some(HealthStatus::Unhealthy) => "Unhealthy",
            Some(HealthStatus::Unknown) | None => "Unknown",
        };
        (word, message)
    }
}

fn shortened(message: String) -> String {
    if message.len() <= MESSAGE_BYTES {
        return message;
    }
    let end = (0..=MESSAGE_BYTES - 3).rev().find(|at| message.is_char_boundary(*at));
    format!("{}...", &message[..end.unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dra::messages::DeviceIdentifier;

    fn told(name: &str, health: HealthStatus, message: &str, seconds: i64) -> DeviceHealth {
        DeviceHealth {
            device: Some(DeviceIdentifier { pool_name: "p".to_owned(), device_name: name.to_owned() }),
            health: health.into(),
            last_updated_time: 0,
            health_check_timeout_seconds: seconds,
            message: message.to_owned(),
        }
    }

    fn device(name: &str) -> Device {
        ("p".to_owned(), name.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_word_holds_for_its_time() {
        let mut health = Health::default();
        let start = Instant::now();
        assert_eq!(health.of("d", &device("a")), ("Unknown", None));
        let list =
            || vec![told("a", HealthStatus::Healthy, "", 0), told("b", HealthStatus::Unhealthy, "hot", 5)];
        assert_eq!(health.update("d", list(), start), [device("a"), device("b")].into());
        assert_eq!(health.update("d", list(), start), [].into());
        assert_eq!(health.of("d", &device("b")), ("Unhealthy", Some("hot".to_owned())));
        assert_eq!(health.of("e", &device("b")), ("Unknown", None));
        assert_eq!(health.next("d"), Some(start + Duration::from_secs(5)));
        assert_eq!(health.expire("d", start + Duration::from_secs(4)), [].into());
        assert_eq!(health.expire("d", start + Duration::from_secs(5)), [device("b")].into());
        assert_eq!(health.of("d", &device("b")), ("Unknown", None));
        assert_eq!(health.next("d"), Some(start + DEFAULT_HEALTH_TTL));
        assert_eq!(health.forget("d"), [device("a"), device("b")].into());
        assert_eq!(health.next("d"), None);
    }

    #[test]
    fn long_messages_are_cut_between_letters() {
        let long = shortened("ä".repeat(600));
        assert!(long.len() <= MESSAGE_BYTES && long.ends_with("ä..."), "{}", long.len());
        assert_eq!(shortened("short".to_owned()), "short");
    }
}
