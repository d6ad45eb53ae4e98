//! How the kubelet is set, in the server's process, an agent's and one of its own alike: by flags under upstream's names,
//! KubeletConfiguration files and, on the server, its own configuration file.

mod args;
mod labels;

pub use args::{ConfigArgs, KubeletArgs};

use crate::eviction::EvictionArgs;
use coracle_kubelet::Config;
use coracle_kubelet::config::{Written, load};
use coracle_kubelet::configuration::check;
use coracle_kubelet::configuration::documents::lay_over;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What was said of the kubelet, checked.
#[derive(Clone, Debug, Default)]
pub struct KubeletSettings {
    /// By the names of KubeletConfiguration's fields.
    pub written: Written,
    node_labels: Vec<(String, String)>,
    root_dir: Option<PathBuf>,
    /// Zero, for ever, which KubeletConfiguration cannot say.
    endless_streams: bool,
}

/// Everything that may say something of the kubelet; the first wins.
#[derive(Default)]
pub struct Said<'a> {
    pub kubelet: KubeletArgs,
    pub eviction: EvictionArgs,
    pub streaming_idle: Option<Duration>,
    pub runtime_endpoint: Option<String>,
    /// A KubeletConfiguration, and a directory of others that are laid over it.
    pub config: Option<&'a Path>,
    pub config_dir: Option<&'a Path>,
    /// Of the server's own configuration file.
    pub file: Written,
}

impl KubeletSettings {
    /// Mistakes go to `mistakes`, each with its flag or field.
    pub fn read(said: Said<'_>, mistakes: &mut Vec<String>) -> Self {
        let mut written = said.file;
        match load(said.config, said.config_dir) {
            Ok(documents) => lay_over(&mut written, documents),
            Err(more) => mistakes.extend(more),
        }
        let node_labels = labels::parse(&said.kubelet.node_labels, mistakes);
        let root_dir = said.kubelet.root_dir.clone();
        let mut flags = said.kubelet.written(mistakes);
        flags.extend(said.eviction.written(mistakes));
        flags.extend(
            said.runtime_endpoint.map(|endpoint| ("containerRuntimeEndpoint".to_owned(), json!(endpoint))),
        );
        let idle = said.streaming_idle.filter(|idle| !idle.is_zero());
        let idle = idle.map(|idle| Value::String(coracle_api::duration::written(idle)));
        flags.extend(idle.map(|idle| ("streamingConnectionIdleTimeout".to_owned(), idle)));
        lay_over(&mut written, flags);
        mistakes.extend(check(&written));
        let endless_streams = said.streaming_idle.is_some_and(|idle| idle.is_zero());
        Self { written, node_labels, root_dir, endless_streams }
    }

    /// Refuses what only a kubelet of its own can have: the cluster's authority signs the others' certificates.
    pub fn refuse_foreign_certificates(&self, mistakes: &mut Vec<String>) {
        let foreign = ["tlsCertFile", "tlsPrivateKeyFile"]
            .into_iter()
            .filter(|field| self.written.contains_key(*field));
        let client_ca =
            self.written.get("authentication").and_then(|all| all.get("x509")?.get("clientCAFile"));
        let foreign = foreign.chain(client_ca.map(|_| "authentication.x509.clientCAFile"));
        let why = "the cluster's own authority is believed and signs; `coracle kubelet` takes another";
        mistakes.extend(foreign.map(|field| format!("{field}: {why}")));
    }

    /// Files of the port's certificate and key, and of the authority by which it knows clients, that flags give.
    pub fn certificates(&mut self, own: Option<(PathBuf, PathBuf)>, client_ca: Option<PathBuf>) {
        let mut given = Written::new();
        if let Some((certificate, key)) = own {
            given.insert("tlsCertFile".to_owned(), json!(certificate));
            given.insert("tlsPrivateKeyFile".to_owned(), json!(key));
        }
        if let Some(path) = client_ca {
            given.insert("authentication".to_owned(), json!({ "x509": { "clientCAFile": path } }));
        }
        lay_over(&mut self.written, given);
    }

    /// Takes over what was said. It has been checked.
    pub fn apply(&self, config: &mut Config) {
        if self.endless_streams {
            config.streaming_connection_idle_timeout = Duration::ZERO;
        }
        config.node_labels.clone_from(&self.node_labels);
        config.root_dir.clone_from(&self.root_dir);
        if let Err(mistakes) = config.apply(&self.written) {
            tracing::error!(mistakes = mistakes.join("; "), "settings of the kubelet");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn flags(line: &[&str]) -> (KubeletArgs, EvictionArgs) {
        let line = ["coracle", "server"].iter().chain(line);
        let Command::Server(args) = Cli::parse_from(line).command else { panic!("another command") };
        (args.kubelet, args.eviction)
    }

    #[test]
    fn flags_win_over_drop_ins_these_over_files_and_these_over_the_servers_own() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let write = |name: &str, fields: &str| {
            let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
            std::fs::write(dir.path().join(name), format!("{head}{fields}")).expect("written");
            dir.path().join(name)
        };
        let config = write(
            "file.yaml",
            "{maxPods: 2, podsPerCore: 2, podPidsLimit: 2000}"
                .trim_matches(['{', '}'])
                .replace(", ", "\n")
                .as_str(),
        );
        write("10.conf", "maxPods: 3\npodsPerCore: 3\n");
        let (kubelet, eviction) = flags(&["--max-pods", "4", "--eviction-hard", "pid.available<4%"]);
        let file = json!({ "maxPods": 1, "podsPerCore": 1, "podPidsLimit": 1000, "seccompDefault": true });
        let mut mistakes = Vec::new();
        let said = Said {
            kubelet,
            eviction,
            config: Some(&config),
            config_dir: Some(dir.path()),
            file: serde_json::from_value(file).expect("an object"),
            ..Said::default()
        };
        let settings = KubeletSettings::read(said, &mut mistakes);
        assert_eq!(mistakes, [""; 0]);
        let mut config = Config::new("n1", [192, 0, 2, 1].into());
        settings.apply(&mut config);
        let shown = config.configuration();
        let of =
            ["maxPods", "podsPerCore", "podPidsLimit", "seccompDefault"].map(|field| shown[field].clone());
        assert_eq!(of, [json!(4), json!(3), json!(2000), json!(true)]);
        assert_eq!(shown["evictionHard"]["pid.available"], "4%");
        assert_eq!(shown["evictionHard"]["memory.available"], "100Mi");
    }

    #[test]
    fn every_flag_is_a_field() {
        let line = [
            "--pod-max-pids=-1",
            "--seccomp-default=false",
            "--protect-kernel-defaults",
            "--system-reserved=cpu=100m,memory=206Mi",
            "--kube-reserved",
            "cpu=100m",
            "--enforce-node-allocatable=pods,system-reserved",
            "--system-reserved-cgroup=/system",
            "--register-with-taints=a=b:NoSchedule,c:NoExecute",
            "--register-node=false",
            "--pod-manifest-path=/manifests",
            "--manifest-url=http://192.0.2.1/pods",
            "--resolv-conf=/r",
            "--cluster-domain=c.example",
            "--serialize-image-pulls=false",
            "--image-gc-high-threshold=90",
            "--image-gc-low-threshold=70",
            "--container-log-max-size=1Mi",
            "--container-log-max-files=3",
            "--cgroup-driver=systemd",
            "--healthz-port=0",
            "--node-labels=disk=ssd,tier=a",
            "--root-dir=/kubelet",
        ];
        let (kubelet, eviction) = flags(&line);
        let mut mistakes = Vec::new();
        let settings = KubeletSettings::read(Said { kubelet, eviction, ..Said::default() }, &mut mistakes);
        assert_eq!(mistakes, [""; 0]);
        let mut config = Config::new("n1", [192, 0, 2, 1].into());
        settings.apply(&mut config);
        let shown = config.configuration();
        for (field, value) in [
            ("podPidsLimit", json!(-1)),
            ("seccompDefault", json!(false)),
            ("protectKernelDefaults", json!(true)),
            ("systemReserved", json!({ "cpu": "100m", "memory": "206Mi" })),
            ("kubeReserved", json!({ "cpu": "100m" })),
            ("enforceNodeAllocatable", json!(["pods", "system-reserved"])),
            ("systemReservedCgroup", json!("/system")),
            ("registerNode", json!(false)),
            ("staticPodPath", json!("/manifests")),
            ("staticPodURL", json!("http://192.0.2.1/pods")),
            ("resolvConf", json!("/r")),
            ("clusterDomain", json!("c.example")),
            ("serializeImagePulls", json!(false)),
            ("imageGCHighThresholdPercent", json!(90)),
            ("imageGCLowThresholdPercent", json!(70)),
            ("containerLogMaxSize", json!("1Mi")),
            ("containerLogMaxFiles", json!(3)),
            ("cgroupDriver", json!("systemd")),
            ("healthzPort", json!(0)),
        ] {
            assert_eq!(shown[field], value, "{field}");
        }
        let taint = |key: &str, value: Option<&str>, effect: &str| json!({ "key": key, "value": value, "effect": effect });
        let taints = json!(config.registration.taints);
        assert_eq!(taints[0], taint("a", Some("b"), "NoSchedule"));
        assert_eq!((&taints[1]["key"], &taints[1]["effect"]), (&json!("c"), &json!("NoExecute")));
        assert_eq!(config.node_labels.len(), 2);
        assert_eq!(config.pods_dir(), Path::new("/kubelet/pods"));
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let line = [
            "--node-labels=a b=c,kubernetes.io/x=y,kubelet.kubernetes.io/ok=1",
            "--system-reserved=cpu",
            "--register-with-taints=a",
        ];
        let (kubelet, eviction) = flags(&line);
        let file =
            json!({ "hairpinMode": "none", "maxpods": 1, "tlsCertFile": "c", "tlsPrivateKeyFile": "k" });
        let file = serde_json::from_value(file).expect("an object");
        let mut mistakes = Vec::new();
        let settings =
            KubeletSettings::read(Said { kubelet, eviction, file, ..Said::default() }, &mut mistakes);
        settings.refuse_foreign_certificates(&mut mistakes);
        let text = mistakes.join("\n");
        for word in [
            "\"a b=c\"",
            "kubernetes.io/x",
            "system-reserved: \"cpu\"",
            "register-with-taints: \"a\"",
            "hairpinMode: \"none\" cannot be had",
            "maxpods: KubeletConfiguration has no such field",
            "tlsCertFile: the cluster's",
        ] {
            assert!(text.contains(word), "{word} is missing from {text}");
        }
        assert!(!text.contains("ok=1"), "{text}");
    }
}
