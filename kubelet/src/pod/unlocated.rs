//! The last words about containers of a deleted pod that nobody saw end.

use super::containers::is_sidecar;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, PodSpec};

/// Of a container that the runtime does not have, and that did not end as far as anybody knows.
pub fn unlocated() -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: 137,
            reason: Some("ContainerStatusUnknown".to_owned()),
            message: Some("The container could not be located when the pod was terminated".to_owned()),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

/// The containers of a pod that was deleted before all of them had ended: each whose turn had come is terminated. Of init
/// containers that is so up to the last that ran, and of the first in any case.
pub fn never_seen_again(
    mut inits: Vec<ContainerStatus>,
    mut apps: Vec<ContainerStatus>,
    initializing: bool,
) -> (Vec<ContainerStatus>, Vec<ContainerStatus>) {
    let end = |status: &mut ContainerStatus| {
        if status.state.as_ref().is_none_or(|state| state.terminated.is_none()) {
            status.state = Some(unlocated());
            status.ready = false;
        }
    };
    let ran = |status: &ContainerStatus| status.container_id.is_some() || status.restart_count > 0;
    let last = inits.iter().rposition(ran).unwrap_or(0);
    inits.iter_mut().take(last + 1).for_each(end);
    if !initializing {
        apps.iter_mut().for_each(end);
    }
    (inits, apps)
}

/// Whether every container that is to end has, and well; sidecars end as they like.
pub fn ended_well(spec: &PodSpec, inits: &[ContainerStatus], apps: &[ContainerStatus]) -> bool {
    let well = |status: &ContainerStatus| {
        let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
        ended.is_some_and(|end| end.exit_code == 0)
    };
    let plain = spec.init_containers.iter().flatten().zip(inits).filter(|(c, _)| !is_sidecar(c));
    plain.map(|(_, status)| status).chain(apps).all(well)
}
