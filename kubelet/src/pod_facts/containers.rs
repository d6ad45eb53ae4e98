//! Containers of a pod, of whichever kind.

use coracle_api::pod::restarts_as_sidecar;
use k8s_openapi::api::core::v1::{Container, EphemeralContainer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Init,
    App,
    Ephemeral,
}

/// An ephemeral container as an ordinary one: the two types have the same fields but for the target.
pub fn as_container(ephemeral: &EphemeralContainer) -> Container {
    // Both serialize to the same names; what Container lacks is dropped.
    serde_json::to_string(ephemeral).and_then(|text| serde_json::from_str(&text)).unwrap_or_default()
}

pub fn is_sidecar(container: &Container) -> bool {
    restarts_as_sidecar(container.restart_policy.as_deref())
}

/// Upstream's names of the kinds of containers.
pub fn container_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Init => "init_container",
        Kind::App => "container",
        Kind::Ephemeral => "ephemeral_container",
    }
}
