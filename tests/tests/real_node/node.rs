//! The node under test, and the steps it is taken through.

use coracle_tests::binary::repository;
use coracle_tests::image::{BUSYBOX, busybox};
use coracle_tests::{Shell, wait_for};
use std::collections::VecDeque;
use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const KUBECONFIG: &str = "/etc/coracle/admin.conf";
const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// There while the node is this test's: what an interrupted run left behind may be taken away.
const OURS: &str = "/etc/coracle/of-the-tests";
/// A first build in release mode on two cores takes some minutes.
const UP_LIMIT: Duration = Duration::from_secs(1800);

/// Whether this machine can be made a node and unmade again; `Err` says why not.
pub fn possible() -> Result<(), String> {
    if !nix::unistd::geteuid().is_root() {
        return Err("needs root, for containers and packet rules".to_owned());
    }
    for program in
        ["kubectl", "containerd", "runc", "iptables", "ctr", "curl", "script", "tar", "nsenter", "ip"]
    {
        let path = std::env::var("PATH").unwrap_or_default();
        if !path.split(':').any(|dir| Path::new(dir).join(program).is_file()) {
            return Err(format!("needs {program}: scripts/prepare installs it"));
        }
    }
    let ours = Path::new(KUBECONFIG).exists() || Path::new(OURS).exists();
    if !ours && std::os::unix::net::UnixStream::connect(CONTAINERD_SOCKET).is_ok() {
        return Err("a containerd runs here that is not ours, and its pods would be in danger".to_owned());
    }
    let kept = std::env::var_os("CORACLE_KEEP_NODE").is_some();
    if Path::new(KUBECONFIG).exists() && !Path::new(OURS).exists() && !kept {
        return Err("a node runs here already: scripts/up --down first, or set CORACLE_KEEP_NODE".to_owned());
    }
    Ok(())
}

/// The machine as a node. Dereferences to its administrator's [`Shell`].
pub struct Node {
    shell: Shell,
    pub dir: TempDir,
    pub name: String,
}

impl Deref for Node {
    type Target = Shell;

    fn deref(&self) -> &Shell {
        &self.shell
    }
}

impl Node {
    /// Starts the node with `scripts/up` and gives it the busybox image.
    pub fn up() -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let shell = Shell::new(dir.path(), Path::new(KUBECONFIG));
        let mut node = Self { shell, dir, name: String::new() };
        if Path::new(OURS).exists() && std::env::var_os("CORACLE_KEEP_NODE").is_none() {
            println!("taking away what an interrupted run left behind");
            node.script("up --down");
        }
        if !Path::new(KUBECONFIG).exists() {
            node.config_for_full_disks();
            std::fs::write(OURS, "").expect("the mark of a test's node");
            let began = Instant::now();
            node.script("up");
            println!("scripts/up took {:.1} s", began.elapsed().as_secs_f64());
        }
        node.ok("kubectl wait node --all --for=condition=Ready --timeout=100s");
        node.name = node.ok("kubectl get nodes -o jsonpath='{.items[0].metadata.name}'");
        let archive = busybox(node.dir.path(), BUSYBOX).expect("the busybox image");
        node.ok(&format!("ctr -n k8s.io images import {}", archive.display()));
        node.until("kubectl get serviceaccount default -o name", "serviceaccount/default");
        node
    }

    /// A machine that builds is often short of disk; what a node does then is another test's matter. And a thousand processes
    /// of a pod that forks without end show as much as more would.
    fn config_for_full_disks(&self) {
        self.ok("mkdir -p /etc/coracle");
        self.ok("echo '{evictionHard: {nodefs.available: 50Mi, imagefs.available: 50Mi}, podPidsLimit: 1024, maxPods: 250}' >/etc/coracle/config.yaml");
    }

    /// `scripts/NAME` with the user's own environment (cargo lives below the real HOME).
    fn script(&self, arguments: &str) -> String {
        let log = self.dir.path().join("script.log");
        let line =
            format!("exec {}/scripts/{arguments} >{} 2>&1 </dev/null", repository().display(), log.display());
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &line]);
        // What cargo tells this test about itself would make the build below it start anew.
        let told = std::env::vars().map(|(name, _)| name).filter(|name| {
            name.starts_with("CARGO_") && !["CARGO_HOME", "CARGO_TARGET_DIR"].contains(&name.as_str())
        });
        for name in told {
            command.env_remove(name);
        }
        let mut child = command.spawn().expect("sh starts");
        let status = wait_for(&format!("scripts/{arguments}"), UP_LIMIT, || {
            let printed = || std::fs::read_to_string(&log).unwrap_or_default();
            child.try_wait().expect("a child's state").ok_or_else(printed)
        });
        let printed = std::fs::read_to_string(&log).unwrap_or_default();
        assert!(status.success(), "scripts/{arguments} ended with {status}:\n{printed}");
        printed
    }

    /// Process id of the server, as scripts/up or systemd keeps it.
    pub fn server_pid(&self) -> String {
        let line = "cat /run/coracle/server.pid 2>/dev/null || systemctl show -p MainPID --value coracle";
        self.ok(line).trim().to_owned()
    }

    /// Starts the server again after it was killed, the way its owner would.
    pub fn start_server_again(&self) {
        self.script("up");
    }

    pub fn up_again_changes_nothing(&self) {
        let state = "cat /etc/coracle/*; stat -c '%n %Y' /etc/coracle/* /etc/cni/net.d/* /var/lib/coracle/pki/*; kubectl get node -o jsonpath='{.items[*].metadata.uid}'";
        let (pid, before) = (self.server_pid(), self.ok(state));
        let said = self.script("up");
        assert!(said.contains("Your node is Ready"), "{said}");
        assert_eq!((self.server_pid(), self.ok(state)), (pid, before));
    }

    /// Leaves a pod behind that the runtime cannot end: its shim has been stopped, and answers nobody.
    pub fn hang_a_shim(&self) {
        let script = "exec sleep 7654323";
        self.apply(&pod("hanging", script, ""));
        self.ok("kubectl wait pod/hanging --for=condition=Ready --timeout=100s");
        self.ok("kill -STOP $(ps -o ppid= -p $(pgrep -fx 'sleep 7654323'))");
    }

    /// Takes the node away, by force where `forced`; what is left of it is the answer, which should be empty.
    pub fn down(&self, forced: bool) -> Vec<String> {
        if std::env::var_os("CORACLE_KEEP_NODE").is_some() {
            println!("the node stays, as asked");
            return Vec::new();
        }
        let said = self.script("up --down");
        assert_eq!(said.contains("forced: killed the shim of sandbox "), forced, "{said}");
        let searches = [
            (
                "processes",
                "ps -eo args | grep -E '^(/usr/local/bin/coracle|/usr/bin/containerd|containerd|/usr/bin/containerd-shim)' | grep -v grep",
            ),
            (
                "mounts",
                "grep -E ' /(var/lib/coracle|run/containerd|run/netns/cni|var/run/netns/cni)' /proc/self/mountinfo",
            ),
            ("interfaces", "ip -o link | grep -E 'veth|cni0|kube-'"),
            ("packet rules", "iptables-save 2>/dev/null | grep -E 'KUBE-|CNI-'"),
            ("packet rules for IPv6", "ip6tables-save 2>/dev/null | grep KUBE-"),
            ("network namespaces", "ip netns list | grep cni"),
            ("control groups", "find /sys/fs/cgroup -type d -path '*kubepods*'"),
            (
                "files",
                "ls -d /etc/coracle /run/coracle /var/lib/coracle /usr/local/bin/coracle /etc/cni/net.d/*coracle* /var/lib/cni/networks/coracle 2>/dev/null",
            ),
            ("units", "ls /etc/systemd/system/coracle.service 2>/dev/null"),
        ];
        let left = searches.iter().map(|(what, line)| (what, self.run(line).stdout));
        left.filter(|(_, found)| !found.trim().is_empty())
            .map(|(what, found)| format!("{what}: {}", found.trim()))
            .collect()
    }
}

/// Steps that are at work at a time. They wait more than they work, on two cores as well.
const TOGETHER: usize = 3;

type Step<'a> = Box<dyn FnOnce(&Shell) + Send + 'a>;

/// Runs steps, each in a namespace of its own, and goes on when one fails: several at a time, and then one by one those
/// that want the node for themselves.
pub struct Steps<'a> {
    pub node: &'a Node,
    chosen: Option<Vec<String>>,
    together: VecDeque<(String, Step<'a>)>,
    alone: VecDeque<(String, Step<'a>)>,
}

impl<'a> Steps<'a> {
    pub fn new(node: &'a Node) -> Self {
        let chosen = std::env::var("CORACLE_STEPS").ok();
        let chosen = chosen.map(|names| names.split(',').map(str::to_owned).collect());
        Self { node, chosen, together: VecDeque::new(), alone: VecDeque::new() }
    }

    pub fn is_chosen(&self, name: &str) -> bool {
        self.chosen.as_ref().is_none_or(|chosen| chosen.iter().any(|c| c == name))
    }

    /// `step` gets a terminal whose kubectl is in the step's own namespace. Other steps run at the same time.
    pub fn run(&mut self, name: &str, step: impl FnOnce(&Shell) + Send + 'a) {
        if self.is_chosen(name) {
            self.together.push_back((name.to_owned(), Box::new(step)));
        }
    }

    /// Likewise, without any other step, and after all that run together.
    pub fn alone(&mut self, name: &str, step: impl FnOnce(&Shell) + Send + 'a) {
        if self.is_chosen(name) {
            self.alone.push_back((name.to_owned(), Box::new(step)));
        }
    }

    /// Runs the steps. Names of those that failed.
    pub fn finish(self) -> Vec<String> {
        let node = self.node;
        let (together, failures) = (Mutex::new(self.together), Mutex::new(Vec::new()));
        let work = || {
            // Not in the loop's head: the lock would be held while the step runs.
            let next = || together.lock().expect("steps panic elsewhere").pop_front();
            while let Some((name, step)) = next() {
                if !node.takes(&name, step) {
                    failures.lock().expect("steps panic elsewhere").push(name);
                }
            }
        };
        std::thread::scope(|scope| (0..TOGETHER).for_each(|_| drop(scope.spawn(work))));
        let mut failures = failures.into_inner().expect("steps panic elsewhere");
        for (name, step) in self.alone {
            if !node.takes(&name, step) {
                failures.push(name);
            }
        }
        failures
    }
}

impl Node {
    /// Whether the step came to its end, and its namespace with all that it made as well.
    fn takes(&self, name: &str, step: Step<'_>) -> bool {
        let began = Instant::now();
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let shell = self.terminal(name);
            step(&shell);
        }));
        let took = began.elapsed().as_secs_f64();
        match &outcome {
            Ok(()) => println!("ok       {name} ({took:.1} s)"),
            Err(_) => {
                println!("failed   {name} ({took:.1} s)");
                let state = self.run(&format!("kubectl get pods -n {name} -o wide; kubectl get events -n {name} --sort-by=.metadata.creationTimestamp | tail -n 15"));
                eprintln!("---- state after {name}\n{state}");
            }
        }
        let gone = self.run(&format!("kubectl delete namespace {name} --timeout=100s"));
        if gone.code != 0 {
            println!("failed   {name}: its namespace stays");
            let state = self.run(&format!("kubectl get namespace {name} -o yaml; kubectl get all -n {name}"));
            eprintln!("{gone}\n{state}");
        }
        outcome.is_ok() && gone.code == 0
    }

    /// A home and a namespace for one step.
    fn terminal(&self, name: &str) -> Shell {
        let home = self.dir.path().join("steps").join(name);
        std::fs::create_dir_all(&home).expect("a home for the step");
        let kubeconfig = home.join("kubeconfig");
        std::fs::copy(KUBECONFIG, &kubeconfig).expect("a copy of the kubeconfig");
        let shell = Shell::new(&home, &kubeconfig);
        shell.ok(&format!(
            "kubectl create namespace {name} && kubectl config set-context --current --namespace={name}"
        ));
        shell.until("kubectl get serviceaccount default -o name", "serviceaccount/default");
        shell
    }
}

/// A pod of one busybox container that runs `script`. `more` are further fields of the container, one a line.
pub fn pod(name: &str, script: &str, more: &str) -> String {
    let more: String = more.lines().map(|line| format!("    {line}\n")).collect();
    let script = serde_json::Value::from(script);
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: {name}}}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: {BUSYBOX}\n    imagePullPolicy: IfNotPresent\n    command: [sh, -c, {script}]\n{more}"
    )
}

/// Applies such a pod and waits until it is Ready.
pub fn running_pod(shell: &Shell, name: &str, script: &str, more: &str) {
    shell.apply(&pod(name, script, more));
    shell.ok(&format!("kubectl wait pod/{name} --for=condition=Ready --timeout=100s"));
}
