//! What `--fix` does. Every step may be taken twice, and lasts over the next start of the machine.

use super::machine::Machine;
use std::fmt;

/// What systemd-sysctl(8) reads at each start.
pub const SETTINGS: &str = "/etc/sysctl.d/90-coracle.conf";
/// What systemd-modules-load(8) reads at each start.
pub const MODULES: &str = "/etc/modules-load.d/coracle.conf";
pub const FSTAB: &str = "/etc/fstab";
/// Rules are kept here before any is taken away.
const RULES: &str = "/var/backups/iptables-legacy.rules";
/// Chains of clusters: upstream's, of CNI's plugins, of Flannel and Calico.
const OF_CLUSTERS: [&str; 4] = ["KUBE-", "CNI-", "FLANNEL-", "cali-"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A Debian package.
    Install(&'static str),
    /// A setting of the kernel.
    Set(&'static str, &'static str),
    Load(&'static str),
    /// Words of the kernel's command line, in a file of one line; they count from the next start.
    AtBoot {
        file: &'static str,
        words: &'static [&'static str],
    },
    /// Neither now nor at the next start.
    SwapOff(String),
    /// Of iptables' old tables, what a cluster of before left.
    DropClusterRules,
    /// Turns containerd's plugin for Kubernetes on.
    EnableCri(&'static str),
    Run(&'static [&'static str]),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Install(package) => write!(f, "apt-get install {package}"),
            Self::Set(key, value) => write!(f, "{key}={value}, now and in {SETTINGS}"),
            Self::Load(module) => write!(f, "modprobe {module}, now and in {MODULES}"),
            Self::AtBoot { file, words } => write!(f, "{} in {file}", words.join(" ")),
            Self::SwapOff(path) => write!(f, "swapoff {path}, and its line in {FSTAB} becomes a comment"),
            Self::DropClusterRules => {
                write!(f, "chains of clusters leave iptables-legacy; {RULES} keeps them")
            }
            Self::EnableCri(config) => write!(f, "disabled_plugins in {config} without \"cri\""),
            Self::Run(command) => f.write_str(&command.join(" ")),
        }
    }
}

impl Step {
    /// # Errors
    /// What kept it from being done; nothing is half done then but for what the words say.
    pub fn take(&self, machine: &Machine) -> Result<(), String> {
        let done = |done: std::io::Result<()>, what: &str| done.map_err(|error| format!("{what}: {error}"));
        match self {
            Self::Install(package) => machine
                .run("apt-get", &["install", "-y", "-q", "--no-install-recommends", package], None)
                .map(drop),
            Self::Set(key, value) => {
                done(machine.set(key, value), key)?;
                let line = format!("{key} = {value}");
                done(machine.write(SETTINGS, &with_setting(&machine.text(SETTINGS), key, &line)), SETTINGS)
            }
            Self::Load(module) => {
                machine.run("modprobe", &[module], None)?;
                done(machine.write(MODULES, &with_line(&machine.text(MODULES), module)), MODULES)
            }
            Self::AtBoot { file, words } => {
                done(machine.write(file, &with_words(&machine.text(file), words)), file)
            }
            Self::SwapOff(path) => {
                done(machine.write(FSTAB, &without_swap(&machine.text(FSTAB), path)), FSTAB)?;
                machine.run("swapoff", &[path], None).map(drop)
            }
            Self::DropClusterRules => {
                let rules = machine.run("iptables-legacy-save", &[], None)?;
                done(machine.write(RULES, &rules), RULES)?;
                let left = without_clusters(&rules);
                machine.run("iptables-legacy-restore", &[], Some(left.as_bytes())).map(drop)
            }
            Self::EnableCri(config) => done(machine.write(config, &with_cri(&machine.text(config))), config),
            Self::Run(command) => match command.split_first() {
                Some((program, arguments)) => machine.run(program, arguments, None).map(drop),
                None => Ok(()),
            },
        }
    }
}

/// In the place of what the file said of the key.
fn with_setting(text: &str, key: &str, line: &str) -> String {
    let other = |l: &&str| l.split('=').next().is_none_or(|said| said.trim() != key);
    let mut lines: Vec<&str> = text.lines().filter(other).collect();
    lines.push(line);
    lines.join("\n") + "\n"
}

fn with_line(text: &str, line: &str) -> String {
    if text.lines().any(|l| l.trim() == line) {
        return text.to_owned();
    }
    let text = text.trim_end();
    if text.is_empty() { format!("{line}\n") } else { format!("{text}\n{line}\n") }
}

/// The kernel reads one line: what stands in a second one counts for nothing.
fn with_words(text: &str, words: &[&str]) -> String {
    let mut all: Vec<&str> = text.split_whitespace().filter(|word| !is_contrary(word)).collect();
    all.extend(words.iter().filter(|word| !text.split_whitespace().any(|said| said == **word)));
    all.join(" ") + "\n"
}

fn is_contrary(word: &str) -> bool {
    word == "cgroup_disable=memory"
}

/// Fields of fstab(5): what, where, type.
fn without_swap(text: &str, path: &str) -> String {
    let is_it = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let named = fields.first().is_some_and(|what| {
            // A partition is mostly named by its UUID; a file by its path.
            *what == path || (path.starts_with("/dev/") && what.contains('='))
        });
        named && fields.get(2) == Some(&"swap")
    };
    let lines = text.lines().map(|line| if is_it(line) { format!("# {line}") } else { line.to_owned() });
    lines.map(|line| line + "\n").collect()
}

/// In the form of iptables-save, without chains of clusters and what leads to them.
fn without_clusters(rules: &str) -> String {
    rules.lines().filter(|line| !is_of_cluster(line)).map(|line| format!("{line}\n")).collect()
}

pub fn is_of_cluster(line: &str) -> bool {
    let mut chains = line.split_whitespace().map(|word| word.trim_start_matches(':'));
    chains.any(|word| OF_CLUSTERS.iter().any(|prefix| word.starts_with(prefix)))
}

/// Whether containerd's file turns its plugin for Kubernetes off, as Docker's package does.
pub fn is_cri_off(config: &str) -> bool {
    config.lines().any(disables_cri)
}

fn disables_cri(line: &str) -> bool {
    let line = line.split('#').next().unwrap_or_default();
    line.split_once('=').is_some_and(|(key, value)| {
        key.trim() == "disabled_plugins" && CRI.iter().any(|name| value.contains(&format!("\"{name}\"")))
    })
}

/// Its names of containerd 1 and 2.
const CRI: [&str; 4] =
    ["cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images"];

fn with_cri(config: &str) -> String {
    let without = |line: &str| {
        let names =
            line.split_once('[').and_then(|(_, names)| names.split_once(']')).map_or("", |(names, _)| names);
        let is_other = |name: &&str| !CRI.iter().any(|cri| name.trim_matches('"') == *cri);
        let left: Vec<&str> =
            names.split(',').map(str::trim).filter(|n| !n.is_empty()).filter(is_other).collect();
        format!("disabled_plugins = [{}]\n", left.join(", "))
    };
    config.lines().map(|line| if disables_cri(line) { without(line) } else { format!("{line}\n") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_changed_where_they_must_be() {
        assert_eq!(with_setting("a.b = 1\nc = 2\n", "a.b", "a.b = 3"), "c = 2\na.b = 3\n");
        assert_eq!(with_line("", "overlay"), "overlay\n");
        assert_eq!(with_line("overlay\n", "overlay"), "overlay\n");
        assert_eq!(with_line("x", "overlay"), "x\noverlay\n");
        let words = ["cgroup_enable=memory", "cgroup_memory=1"];
        let once = with_words("root=/dev/mmcblk0p2 cgroup_disable=memory quiet\n", &words);
        assert_eq!(once, "root=/dev/mmcblk0p2 quiet cgroup_enable=memory cgroup_memory=1\n");
        assert_eq!(with_words(&once, &words), once, "twice is harmless");
    }

    #[test]
    fn swap_alone_becomes_a_comment() {
        let text = "UUID=1 / ext4 defaults 0 1\nUUID=2 none swap sw 0 0\n/swapfile none swap sw 0 0\n";
        assert_eq!(
            without_swap(text, "/swapfile"),
            "UUID=1 / ext4 defaults 0 1\nUUID=2 none swap sw 0 0\n# /swapfile none swap sw 0 0\n"
        );
        assert!(without_swap(text, "/dev/sda3").contains("# UUID=2 none swap"));
        assert!(without_swap(text, "/dev/sda3").contains("\n/swapfile none swap"));
    }

    #[test]
    fn rules_of_others_stay() {
        let rules = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n\
                     -A POSTROUTING -s 192.0.2.0/24 -j MASQUERADE\nCOMMIT\n";
        assert_eq!(
            without_clusters(rules),
            "*nat\n:PREROUTING ACCEPT [0:0]\n-A POSTROUTING -s 192.0.2.0/24 -j MASQUERADE\nCOMMIT\n"
        );
    }

    #[test]
    fn the_plugin_for_kubernetes_is_turned_on_and_no_other() {
        let config = "version = 2\ndisabled_plugins = [\"cri\", \"aufs\"] # Docker's\n[plugins]\n";
        assert!(is_cri_off(config));
        let on = with_cri(config);
        assert_eq!(on, "version = 2\ndisabled_plugins = [\"aufs\"]\n[plugins]\n");
        assert!(!is_cri_off(&on) && !is_cri_off("# disabled_plugins = [\"cri\"]\n"));
        assert!(!is_cri_off("disabled_plugins = [\"aufs\"]\n"));
    }
}
