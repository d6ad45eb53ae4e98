//! Lines of the log, once more for the component that wrote them.

use coracle_kubelet::ComponentLogs;
use parking_lot::Mutex;

/// Upstream's names of components, by ours.
pub const NAMES: [(&str, &str); 4] = [
    ("scheduler", "kube-scheduler"),
    ("controllers", "kube-controller-manager"),
    ("proxy", "kube-proxy"),
    ("dns", "coredns"),
];
pub const API_SERVER: &str = "kube-apiserver";

/// Lines that are kept until it is known whether they are shown. A start writes some thirty.
const EARLY: usize = 200;

enum Parts {
    /// Component and line.
    Early(Vec<(&'static str, String)>),
    Shown(ComponentLogs),
    Off,
}

static PARTS: Mutex<Parts> = Mutex::new(Parts::Early(Vec::new()));

/// From now on lines are written there, with those from before. `None`: nowhere.
pub fn show(logs: Option<ComponentLogs>) {
    let mut parts = PARTS.lock();
    let Some(logs) = logs else {
        *parts = Parts::Off;
        return;
    };
    if let Parts::Early(lines) = &*parts {
        lines.iter().for_each(|(component, line)| logs.write(component, line));
    }
    *parts = Parts::Shown(logs);
}

/// A line that was written, of this module.
pub fn tell(target: &str, line: &str) {
    let mut parts = PARTS.lock();
    if matches!(*parts, Parts::Off) {
        return;
    }
    let line = plain(line.trim_end());
    let Some(component) = component_of(target, &line) else { return };
    match &mut *parts {
        Parts::Early(lines) if lines.len() < EARLY => lines.push((component, line)),
        Parts::Shown(logs) => logs.write(component, &line),
        Parts::Early(_) | Parts::Off => {}
    }
}

/// Whose line it is: the name of the component's pod. `target` is the module that wrote it.
fn component_of(target: &str, line: &str) -> Option<&'static str> {
    if target == "coracle::supervise" {
        let named = |ours: &str| line.contains(&format!("component=\"{ours}\""));
        return NAMES.iter().find(|(ours, _)| named(ours)).map(|(_, name)| *name);
    }
    match target.split("::").next().unwrap_or_default() {
        "coracle_scheduler" => Some("kube-scheduler"),
        "coracle_controllers" => Some("kube-controller-manager"),
        "coracle_proxy" => Some("kube-proxy"),
        "coracle_dns" => Some("coredns"),
        // The node's own.
        "coracle_kubelet" | "coracle_storage" | "coracle_client" => None,
        own if own.starts_with("coracle") => Some(API_SERVER),
        _ => None,
    }
}

/// Without the colours of a terminal.
fn plain(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\x1b') {
        text.push_str(before);
        rest = after.split_once('m').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::component_of;

    #[test]
    fn colours_are_a_terminals() {
        assert_eq!(super::plain("\x1b[2mnow\x1b[0m \x1b[32m INFO\x1b[0m it is"), "now  INFO it is");
        assert_eq!(super::plain("it is"), "it is");
    }

    #[test]
    fn every_line_is_its_components() {
        let ended = "ERROR coracle::supervise: component ended, restarting it component=\"proxy\" why=panic";
        for (target, line, whose) in [
            ("coracle::supervise", ended, Some("kube-proxy")),
            ("coracle::supervise", "component=\"kubelet\"", None),
            ("coracle_scheduler::run", "", Some("kube-scheduler")),
            ("coracle_controllers", "", Some("kube-controller-manager")),
            ("coracle_dns::server", "", Some("coredns")),
            ("coracle_registry::create", "", Some("kube-apiserver")),
            ("coracle::server", "", Some("kube-apiserver")),
            ("coracle_kubelet::pod", "", None),
            ("hyper", "", None),
        ] {
            assert_eq!(component_of(target, line), whose, "{target}");
        }
    }
}
