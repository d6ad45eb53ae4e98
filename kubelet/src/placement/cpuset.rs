//! Sets of CPUs as the kernel writes them: `0-3,8`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeSet;
use std::fmt;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuSet(pub BTreeSet<u32>);

/// No machine has more; a range that is longer is a mistake.
const MOST: u32 = 65_536;

impl CpuSet {
    /// `None` of what is no list of numbers and ranges.
    pub fn parse(text: &str) -> Option<Self> {
        let mut all = BTreeSet::new();
        for part in text.trim().split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last >= MOST {
                return None;
            }
            all.extend(first..=last);
        }
        Some(Self(all))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    pub fn has(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    pub fn has_all(&self, other: &Self) -> bool {
        self.0.is_superset(&other.0)
    }

    pub fn and(&self, other: &Self) -> Self {
        Self(&self.0 & &other.0)
    }

    pub fn or(&self, other: &Self) -> Self {
        Self(&self.0 | &other.0)
    }

    pub fn without(&self, other: &Self) -> Self {
        Self(&self.0 - &other.0)
    }

    pub fn filter(&self, keep: impl Fn(u32) -> bool) -> Self {
        Self(self.iter().filter(|cpu| keep(*cpu)).collect())
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        for (at, (first, last)) in ranges.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no set of CPUs")))
    }
}

#[cfg(test)]
mod tests {
    use super::CpuSet;
    use proptest::prelude::*;

    #[test]
    fn texts_and_sets() {
        for (text, shown) in [("", ""), ("3,1,2,7\n", "1-3,7"), ("0-0", "0"), ("0-3,2-5", "0-5")] {
            assert_eq!(CpuSet::parse(text).unwrap().to_string(), shown);
        }
        for bad in ["a", "3-1", "-1", "0-70000", "1;2"] {
            assert_eq!(CpuSet::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(all in proptest::collection::btree_set(0u32..300, 0..40)) {
            let set = CpuSet(all);
            prop_assert_eq!(CpuSet::parse(&set.to_string()), Some(set));
        }
    }
}
