//! What may run short, by upstream's names
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#eviction-signals>).

use coracle_api::Quantity;
use std::collections::BTreeMap;

/// In the order in which they are relieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    MemoryAvailable,
    NodefsAvailable,
    NodefsInodesFree,
    ImagefsAvailable,
    ImagefsInodesFree,
    PidAvailable,
}

/// What the node says of itself when a signal is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    Memory,
    Disk,
    Pid,
}

impl Signal {
    pub const ALL: [(&'static str, Self); 6] = [
        ("memory.available", Self::MemoryAvailable),
        ("nodefs.available", Self::NodefsAvailable),
        ("nodefs.inodesFree", Self::NodefsInodesFree),
        ("imagefs.available", Self::ImagefsAvailable),
        ("imagefs.inodesFree", Self::ImagefsInodesFree),
        ("pid.available", Self::PidAvailable),
    ];

    /// # Errors
    /// Names those that are known.
    pub fn parse(name: &str) -> Result<Self, String> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal).ok_or_else(|| {
            let known = Self::ALL.map(|(name, _)| name).join(", ");
            format!("unknown signal \"{name}\", known are {known}")
        })
    }

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, signal)| *signal == self).map_or("", |(name, _)| name)
    }

    pub fn pressure(self) -> Pressure {
        match self {
            Self::MemoryAvailable => Pressure::Memory,
            Self::PidAvailable => Pressure::Pid,
            _ => Pressure::Disk,
        }
    }

    /// What messages call it.
    pub fn resource(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory",
            Self::NodefsAvailable | Self::ImagefsAvailable => "ephemeral-storage",
            Self::NodefsInodesFree | Self::ImagefsInodesFree => "inodes",
            Self::PidAvailable => "pids",
        }
    }

    /// An amount of it as messages give it.
    pub fn quantity(self, amount: u64) -> Quantity {
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        match self {
            Self::MemoryAvailable | Self::NodefsAvailable | Self::ImagefsAvailable => {
                Quantity::from_bytes(amount)
            }
            _ => Quantity::from_units(amount),
        }
    }
}

/// In the signal's own unit: bytes, inodes or processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub available: u64,
    pub capacity: u64,
}

/// All that is known at one moment. A signal that could not be read is missing, and is not short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observations {
    pub amounts: BTreeMap<Signal, Amount>,
    /// Images lie on a file system of their own.
    pub imagefs_apart: bool,
}
