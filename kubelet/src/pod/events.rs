//! What a worker tells people about its pod.

use super::worker::Worker;
use coracle_client::events::reference;

impl Worker {
    pub(super) fn event(
        &self,
        container: Option<&str>,
        kind: &'static str,
        reason: &str,
        message: impl Into<String>,
    ) {
        let mut regarding = reference(self.pod.as_ref());
        regarding.field_path = container.map(|name| {
            let spec = self.pod.spec.as_ref();
            let init = spec.and_then(|s| s.init_containers.as_ref());
            let is_init = init.is_some_and(|all| all.iter().any(|c| c.name == name));
            let list = if is_init { "initContainers" } else { "containers" };
            format!("spec.{list}{{{name}}}")
        });
        let message = message.into();
        if self.kubelet.config.standalone {
            // Nobody else hears of it.
            tracing::info!(pod = %self.full_name(), reason, message, "{kind}");
        }
        self.kubelet.recorder.event(regarding, kind, reason, message);
    }
}
