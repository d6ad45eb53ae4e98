//! Below what the node says that it runs short: KubeletConfiguration's `evictionHard`.
//! <https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/>

use super::status::Pressure;
use crate::eviction::{Signal, binary};
use coracle_api::quantity::Quantity;
use std::collections::BTreeMap;

/// What must be left of one resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// In the resource's own unit: bytes, or a number of processes.
    Amount(u64),
    /// Of the whole, in hundredths of a percent.
    Share(u64),
}

impl Threshold {
    fn parse(text: &str) -> Option<Self> {
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.parse().ok().filter(|p| (0.0..=100.0).contains(p))?;
            let hundredths = format!("{:.0}", percent * 100.0);
            return hundredths.parse().ok().map(Self::Share);
        }
        let amount: Quantity = text.parse().ok()?;
        u64::try_from(amount.units()).ok().map(Self::Amount)
    }

    fn least(self, total: u64) -> u64 {
        match self {
            Self::Amount(least) => least,
            Self::Share(least) => {
                let whole = u128::from(total) * u128::from(least) / 10_000;
                u64::try_from(whole).unwrap_or(u64::MAX)
            }
        }
    }

    fn crossed(self, available: u64, total: u64) -> bool {
        match self {
            Self::Amount(least) => available < least,
            Self::Share(least) => u128::from(available) * 10_000 < u128::from(total) * u128::from(least),
        }
    }
}

/// The defaults are upstream's, but for process ids, for which it has none: below 2 % nothing can start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    memory: Threshold,
    disk: Threshold,
    pids: Threshold,
    images: Threshold,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            memory: Threshold::Amount(100 << 20),
            disk: Threshold::Share(1000),
            pids: Threshold::Share(200),
            images: Threshold::Share(1500),
        }
    }
}

impl Thresholds {
    /// Of a map such as `nodefs.available: 10%`. Signals that are left out keep their defaults.
    ///
    /// # Errors
    /// Names an unknown signal, or an amount that is neither a quantity nor a percentage.
    pub fn parse(signals: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut all = Self::default();
        for (signal, amount) in signals {
            let threshold = Threshold::parse(amount)
                .ok_or_else(|| format!("\"{amount}\" of {signal} is neither a quantity nor a percentage"))?;
            match signal.as_str() {
                "memory.available" => all.memory = threshold,
                "nodefs.available" => all.disk = threshold,
                "pid.available" => all.pids = threshold,
                "imagefs.available" => all.images = threshold,
                _ => {
                    return Err(format!(
                        "unknown signal \"{signal}\", known are memory.available, nodefs.available, pid.available, imagefs.available"
                    ));
                }
            }
        }
        Ok(all)
    }

    pub fn memory_short(&self, at: &Pressure) -> bool {
        self.memory.crossed(at.memory_available, at.memory_total)
    }

    pub fn disk_short(&self, at: &Pressure) -> bool {
        self.disk.crossed(at.disk_available, at.disk_total)
    }

    /// Bytes of images to remove where so many are free: below the threshold (upstream's 85 % in use) as many as it
    /// takes to a third more than that (upstream's 80 %).
    pub fn images_to_free(&self, available: u64, total: u64) -> u64 {
        if !self.images.crossed(available, total) {
            return 0;
        }
        let least = self.images.least(total);
        (least + least / 3).saturating_sub(available)
    }

    /// The threshold of a signal and what is left, as messages give them: bytes as quantities.
    pub fn met(&self, signal: Signal, at: &Pressure) -> (String, String) {
        match signal {
            Signal::Memory => (binary(self.memory.least(at.memory_total)), binary(at.memory_available)),
            Signal::Disk => (binary(self.disk.least(at.disk_total)), binary(at.disk_available)),
            Signal::Pids => {
                let left = at.pids_max.saturating_sub(at.pids_used);
                (self.pids.least(at.pids_max).to_string(), left.to_string())
            }
        }
    }

    pub fn pids_short(&self, at: &Pressure) -> bool {
        self.pids.crossed(at.pids_max.saturating_sub(at.pids_used), at.pids_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(signal: &str, amount: &str) -> Result<Thresholds, String> {
        Thresholds::parse(&BTreeMap::from([(signal.to_owned(), amount.to_owned())]))
    }

    #[test]
    fn amounts_and_shares_are_told_apart() {
        let at = Pressure { disk_total: 1000, disk_available: 99, ..Pressure::default() };
        assert!(Thresholds::default().disk_short(&at), "less than ten percent");
        assert!(!parse("nodefs.available", "9.5%").unwrap().disk_short(&at));
        assert!(!parse("nodefs.available", "99").unwrap().disk_short(&at));
        assert!(parse("nodefs.available", "1Ki").unwrap().disk_short(&at));
    }

    #[test]
    fn images_go_from_85_percent_to_80() {
        let all = Thresholds::default();
        assert_eq!(all.images_to_free(150, 1000), 0);
        assert_eq!(all.images_to_free(149, 1000), 51);
        assert_eq!(parse("imagefs.available", "300").unwrap().images_to_free(200, 1000), 200);
    }

    #[test]
    fn messages_give_bytes_as_quantities() {
        let at = Pressure { memory_total: 1 << 30, memory_available: 90 << 20, ..Pressure::default() };
        let told = Thresholds::default().met(Signal::Memory, &at);
        assert_eq!(told, ("100Mi".to_owned(), "90Mi".to_owned()));
    }

    #[test]
    fn mistakes_are_named() {
        for (signal, amount) in
            [("nodefs.free", "1"), ("nodefs.available", "much"), ("pid.available", "101%")]
        {
            assert!(parse(signal, amount).is_err(), "{signal} {amount}");
        }
    }
}
