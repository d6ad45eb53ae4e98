//! What a volume that is moved says of it, in the annotation [`MOVE`].

use crate::facts;
use crate::local_path::transfer::Written;
use coracle_api::storage::{MOVE, is_moving};
use k8s_openapi::api::core::v1::PersistentVolume;
use serde::{Deserialize, Serialize};

/// How far it is.
///
/// ```text
/// asked -> copying -> copied -> moved (what was copied goes)
///    \         \         \
///     `---------`---------`---> refused (what was made goes)
/// ```
///
/// Until it is moved or refused no pod may have the volume, and the old one is whole; from `copied` on the new one is, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Somebody wants it.
    Asked,
    Copying,
    /// The copy is whole, was compared and is on the disk. It is about to be the claim's.
    Copied,
    Moved,
    /// Everything is as it was; `message` says why.
    Refused,
}

/// Where a volume is to lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spot {
    /// The Node's name.
    pub node: String,
    /// A further place of the node's; empty for where volumes are made.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
}

/// A directory on a node, as jobs name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remains {
    pub node: String,
    pub directory: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// Chosen by whoever asks, to know what is his.
    pub id: String,
    pub to: Spot,
    pub step: Step,
    /// Somebody wants everything as it was. Counts until the copy is the claim's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub take_back: bool,
    /// How often copying was begun.
    #[serde(default)]
    pub attempt: u64,
    /// Bytes that went so far, and about how many there are.
    #[serde(default)]
    pub sent_bytes: u64,
    #[serde(default)]
    pub total_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<Written>,
    /// Why it was refused, or why it does not go on yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What is to be removed yet: the source of what was moved, the copy of what was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Remains>,
}

impl Move {
    pub fn new(id: String, to: Spot) -> Self {
        Self {
            id,
            to,
            step: Step::Asked,
            take_back: false,
            attempt: 0,
            sent_bytes: 0,
            total_bytes: 0,
            written: None,
            message: String::new(),
            left: None,
        }
    }

    /// `None` also of what nobody understands.
    pub fn of(volume: &PersistentVolume) -> Option<Self> {
        serde_json::from_str(facts::annotation(volume, MOVE)?).ok()
    }

    /// The volume that says so.
    pub fn on(&self, mut volume: PersistentVolume) -> PersistentVolume {
        // A struct of texts and numbers cannot fail to be written.
        let text = serde_json::to_string(self).unwrap_or_default();
        volume.metadata.annotations.get_or_insert_default().insert(MOVE.to_owned(), text);
        volume
    }

    /// Whether pods are held off.
    pub fn holds(&self) -> bool {
        matches!(self.step, Step::Asked | Step::Copying | Step::Copied)
    }

    /// Whether there is something to be done yet.
    pub fn is_open(&self) -> bool {
        self.holds() || self.left.is_some()
    }

    /// Everything is as it was, but for what was made.
    pub fn refused(self, why: impl Into<String>, left: Option<Remains>) -> Self {
        Self { step: Step::Refused, message: why.into(), left, ..self }
    }
}

/// Whether the volume is being moved.
pub fn is_held(volume: &PersistentVolume) -> bool {
    is_moving(volume.metadata.annotations.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_holds_as_the_others_read_it() {
        let spot = Spot { node: "two".to_owned(), place: "big".to_owned() };
        let mut state = Move::new("1".to_owned(), spot);
        for (step, holds) in [
            (Step::Asked, true),
            (Step::Copying, true),
            (Step::Copied, true),
            (Step::Moved, false),
            (Step::Refused, false),
        ] {
            state.step = step;
            let volume = state.on(PersistentVolume::default());
            assert_eq!(Move::of(&volume), Some(state.clone()));
            assert_eq!((state.holds(), is_held(&volume)), (holds, holds), "{step:?}");
            assert_eq!(state.is_open(), holds);
        }
        let left = Remains { node: "two".to_owned(), directory: "@big/v".to_owned() };
        let refused = state.refused("full", Some(left));
        assert!(!refused.holds() && refused.is_open() && refused.message == "full");
    }
}
