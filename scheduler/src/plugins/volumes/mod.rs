//! Plugins about volumes: where they can be reached, whether they can be had, how many a node takes.

mod binding;
mod capacity;
mod kinds;
mod limits;
mod lookup;
mod matching;
mod restrictions;
mod zone;

use super::{Handle, Registry, none};

pub(super) fn register(registry: &mut Registry) {
    registry.add("VolumeRestrictions", restrictions::POINTS, |handle: &Handle, args| {
        none(args).map(|()| restrictions::VolumeRestrictions::new(handle.cluster.clone()))
    });
    registry.add("NodeVolumeLimits", limits::POINTS, |handle: &Handle, args| {
        none(args).map(|()| limits::NodeVolumeLimits::new(handle.cluster.clone()))
    });
    registry.add("VolumeBinding", binding::POINTS, binding::VolumeBinding::new);
    registry.add("VolumeZone", zone::POINTS, |handle: &Handle, args| {
        none(args).map(|()| zone::VolumeZone::new(handle.cluster.clone()))
    });
}
