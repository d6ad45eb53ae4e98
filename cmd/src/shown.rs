//! The components that are shown as pods of kube-system, and their logs.

use crate::log::parts::{self, API_SERVER, NAMES};
use crate::supervise::{Supervisor, works};
use coracle_kubelet::{Component, ComponentLogs, Config};
use tokio::sync::watch;

/// Those that the supervisor has, and the API server where there is one.
pub fn components(supervisor: &Supervisor, api_server: bool) -> Vec<Component> {
    // It works for as long as anybody can ask it.
    let own = api_server.then(|| Component { name: API_SERVER, state: watch::channel(works(0)).1 });
    let others =
        NAMES.iter().filter_map(|(ours, name)| Some(Component { name, state: supervisor.state(ours)? }));
    own.into_iter().chain(others).collect()
}

/// Has the kubelet show all components, and their lines of the log written where it looks for them.
pub fn all(settings: &mut Config, supervisor: &Supervisor, api_server: bool) {
    settings.components = components(supervisor, api_server);
    log(settings);
}

/// Has the lines of the log written for the components that the kubelet shows.
pub fn log(settings: &Config) {
    let any = !settings.components.is_empty();
    parts::show(any.then(|| ComponentLogs::open(settings)));
}

/// There is no kubelet that shows anything.
pub fn nothing() {
    parts::show(None);
}
