//! Pulling, from a registry on loopback.

use crate::node::{Steps, pod};
use coracle_tests::cluster::free_port;
use coracle_tests::shell::Background;
use coracle_tests::{Shell, wait_for};
use std::path::PathBuf;
use std::time::Duration;

pub fn steps(steps: &mut Steps<'_>) {
    if steps.node.run("command -v docker-registry skopeo").code != 0 {
        println!("skipped: pulling needs docker-registry and skopeo");
        return;
    }
    let archive = steps.node.dir.path().join("busybox.tar");
    steps.run("pull", move |shell| pull(shell, &archive));
}

/// The runtime's settings for one registry, taken away with the value.
pub struct Hosts(PathBuf);

impl Hosts {
    pub fn plain_http(registry: &str) -> Self {
        let dir = PathBuf::from("/etc/containerd/certs.d").join(registry);
        std::fs::create_dir_all(&dir).expect("the runtime's directory for registries");
        std::fs::write(dir.join("hosts.toml"), format!("server = \"http://{registry}\"\n"))
            .expect("the registry's settings");
        Self(dir)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // Nothing else is in there; the parents only go when they are empty.
        let _ = std::fs::remove_dir_all(&self.0);
        for parent in self.0.ancestors().skip(1).take(2) {
            let _ = std::fs::remove_dir(parent);
        }
    }
}

/// Images of this step in the runtime, which keeps them beyond the node: gone before, for those of an interrupted run,
/// and after.
pub struct Boats<'a>(&'a Shell, String);

impl<'a> Boats<'a> {
    /// Those called `name` in whatever registry.
    pub fn none(shell: &'a Shell, name: &str) -> Self {
        let remove = format!(
            "ctr -n k8s.io images ls -q | {{ grep -E '^127\\.0\\.0\\.1:[0-9]+/{name}' || true; }} | xargs -r ctr -n k8s.io images rm"
        );
        shell.ok(&remove);
        Self(shell, remove)
    }
}

impl Drop for Boats<'_> {
    fn drop(&mut self) {
        // Those of running containers stay until these are gone; the next run takes them away.
        self.0.run(&self.1);
    }
}

/// `more` are further lines of its configuration.
pub fn registry(shell: &Shell, port: u16, more: &str) -> Background {
    let config = format!(
        "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}/images}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\nlog: {{level: error}}\n{more}",
        shell.home().display()
    );
    std::fs::write(shell.home().join("registry.yaml"), config).expect("the registry's configuration");
    let running = shell.start("docker-registry serve registry.yaml", "registry.log");
    wait_for("the registry", Duration::from_secs(30), || {
        let output = shell.run(&format!("curl -s --max-time 2 http://127.0.0.1:{port}/v2/"));
        if output.code == 0 { Ok(()) } else { Err(format!("{output}\n{}", running.printed())) }
    });
    running
}

fn pull(shell: &Shell, archive: &std::path::Path) {
    let _boats = Boats::none(shell, "boat");
    let port = free_port();
    let name = format!("127.0.0.1:{port}");
    let _hosts = Hosts::plain_http(&name);
    let running = registry(shell, port, "");
    let image = |tag: &str| {
        pod(tag, "echo pulled; sleep 3600", "")
            .replace("docker.io/library/busybox:1.36", &format!("{name}/boat:{tag}"))
    };
    shell.apply(&image("late"));
    shell.until_that("kubectl get pod late --no-headers | awk '{print $3}'", |s| {
        s.trim() == "ErrImagePull" || s.trim() == "ImagePullBackOff"
    });
    shell.until("kubectl get pod late --no-headers | awk '{print $3}'", "ImagePullBackOff");
    shell.says("kubectl get pod late -o jsonpath='{.status.containerStatuses[0].state.waiting.message}' | cut -c1-45", &format!("Back-off pulling image \"{name}/boat:late\"")[..45]);
    let events = "kubectl get events --field-selector involvedObject.name=late -o jsonpath='{range .items[*]}{.reason}: {.message}{\"\\n\"}{end}'";
    shell.shows(
        &format!("{events} | sort"),
        &[
            &format!("BackOff: Back-off pulling image \"{name}/boat:late\""),
            "Failed: Error: ErrImagePull",
            &format!("Pulling: Pulling image \"{name}/boat:late\""),
        ],
    );
    shell.shows(events, &[&format!("Failed to pull image \"{name}/boat:late\": ")]);
    for tag in ["late", "fresh"] {
        shell.ok(&format!("skopeo copy --insecure-policy --dest-tls-verify=false docker-archive:{} docker://{name}/boat:{tag}", archive.display()));
    }
    shell.ok("kubectl wait pod/late --for=condition=Ready --timeout=120s");
    shell.apply(&image("fresh"));
    shell.ok("kubectl wait pod/fresh --for=condition=Ready --timeout=100s");
    shell.says("kubectl logs fresh", "pulled");
    shell.until_that(&events.replace("=late", "=fresh"), |out| {
        out.contains(&format!("Pulled: Successfully pulled image \"{name}/boat:fresh\" in "))
    });
    shell.says(
        "kubectl get pod fresh -o jsonpath='{.status.containerStatuses[0].image}'",
        &format!("{name}/boat:fresh"),
    );
    drop(running);
    shell.apply(&image("fresh").replace("name: fresh", "name: cached"));
    shell.ok("kubectl wait pod/cached --for=condition=Ready --timeout=100s");
    shell.apply(
        &image("fresh")
            .replace("name: fresh", "name: never")
            .replace("IfNotPresent", "Never")
            .replace("boat:fresh", "boat:nowhere"),
    );
    shell.until("kubectl get pod never --no-headers | awk '{print $3}'", "ErrImageNeverPull");
    shell.apply(&image("fresh").replace("name: fresh", "name: wrong").replace("boat:fresh", "BOAT:fresh"));
    shell.until("kubectl get pod wrong --no-headers | awk '{print $3}'", "InvalidImageName");
}
