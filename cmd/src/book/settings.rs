//! `docs/configuration.md`, of the flags: `coracle help settings >docs/configuration.md`.

use crate::access::AccessArgs;
use crate::args::{AgentArgs, ServerArgs};
use crate::authorization::AuthorizationArgs;
use crate::edge::EdgeArgs;
use crate::encryption::EncryptionArgs;
use crate::etcd::EtcdArgs;
use crate::eviction::EvictionArgs;
use crate::kubelet::{ConfigArgs, KubeletArgs};
use crate::lifecycle::LifecycleArgs;
use crate::scheduled::ScheduleArgs;
use clap::{Arg, Args, Command};
use std::collections::BTreeSet;
use std::fmt::Write;

const HEAD: &str = include_str!("configuration.md");

/// Where flags stand in the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At the top, in camelCase.
    Top,
    /// In a section, in camelCase.
    Section(&'static str),
    /// Under `kubelet`, by the names of KubeletConfiguration.
    Kubelet,
    /// Nowhere: they say where the file is, or how much is printed.
    Nowhere,
}

struct Group {
    title: &'static str,
    place: Place,
    flags: Vec<Arg>,
}

fn flags<A: Args>() -> Vec<Arg> {
    A::augment_args(Command::new("")).get_arguments().cloned().collect()
}

fn named(flags: &[Arg]) -> BTreeSet<String> {
    flags.iter().map(long).collect()
}

fn long(flag: &Arg) -> String {
    flag.get_long().unwrap_or_default().to_owned()
}

/// Every flag of the server, once.
fn groups() -> Vec<Group> {
    let mut groups = vec![
        group::<EtcdArgs>("Store: etcd", Place::Top),
        group::<EvictionArgs>("Kubelet: when the node is short of something", Place::Top),
        group::<ConfigArgs>("Kubelet: files", Place::Nowhere),
        group::<KubeletArgs>("Kubelet", Place::Kubelet),
        group::<LifecycleArgs>("Controllers: nodes that are lost", Place::Section("nodeLifecycle")),
        group::<EdgeArgs>("API server: limits, audit, traces, admission", Place::Section("apiServer")),
        group::<AccessArgs>("API server: who is who", Place::Section("authentication")),
        group::<AuthorizationArgs>("API server: who may do what", Place::Section("authorization")),
        group::<EncryptionArgs>("API server: encryption at rest", Place::Section("encryption")),
        group::<ScheduleArgs>("Backups", Place::Section("backup")),
    ];
    let grouped: BTreeSet<String> = groups.iter().flat_map(|group| named(&group.flags)).collect();
    let rest: Vec<Arg> =
        flags::<ServerArgs>().into_iter().filter(|flag| !grouped.contains(&long(flag))).collect();
    let (nowhere, top) = rest.into_iter().partition(|flag| matches!(long(flag).as_str(), "config" | "v"));
    groups.insert(0, Group { title: "The server", place: Place::Top, flags: top });
    groups.push(Group { title: "The command line alone", place: Place::Nowhere, flags: nowhere });
    groups
}

fn group<A: Args>(title: &'static str, place: Place) -> Group {
    Group { title, place, flags: flags::<A>() }
}

/// The name in the file, with its section.
fn key(place: Place, flag: &str) -> Option<String> {
    match place {
        Place::Top => Some(camel(flag)),
        Place::Section(section) => Some(format!("{section}.{}", camel(flag))),
        Place::Kubelet => field(flag).map(|field| format!("kubelet.{field}")),
        Place::Nowhere => None,
    }
}

/// Upstream's flags are not always called as its fields.
fn field(flag: &str) -> Option<String> {
    let other = match flag {
        "pod-max-pids" => "podPidsLimit",
        "pod-manifest-path" => "staticPodPath",
        "manifest-url" => "staticPodURL",
        "resolv-conf" => "resolvConf",
        "image-gc-high-threshold" => "imageGCHighThresholdPercent",
        "image-gc-low-threshold" => "imageGCLowThresholdPercent",
        // Upstream has them as flags alone.
        "node-labels" | "root-dir" => return None,
        _ => return Some(camel(flag)),
    };
    Some(other.to_owned())
}

fn camel(flag: &str) -> String {
    let mut words = flag.split('-');
    let mut name = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at(1);
        name += &first.to_ascii_uppercase();
        name += rest;
    }
    name
}

/// The whole page, as Markdown.
pub fn page() -> String {
    let mut text = HEAD.to_owned();
    for group in groups() {
        heading(&mut text, group.title, true);
        group.flags.iter().for_each(|flag| row(&mut text, flag, key(group.place, &long(flag)).as_deref()));
    }
    text +=
        "\n# Every setting of `coracle agent`\n\nThey are flags; `coracle agent` has no file of its own.\n";
    let server: BTreeSet<String> = flags::<ServerArgs>().iter().map(long).collect();
    let (same, own): (Vec<Arg>, Vec<Arg>) = flags::<AgentArgs>()
        .into_iter()
        .partition(|flag| server.contains(&long(flag)) && is_shared(&long(flag)));
    heading(&mut text, "Its own", false);
    own.iter().for_each(|flag| row(&mut text, flag, None));
    let names: Vec<String> = same.iter().map(|flag| format!("`--{}`", long(flag))).collect();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "\nAs the server's: {}.", names.join(", "));
    text
}

/// Whether an agent means the same by it.
fn is_shared(flag: &str) -> bool {
    !matches!(flag, "disable" | "node-name" | "data-dir")
}

fn heading(text: &mut String, title: &str, file: bool) {
    let _ = write!(text, "\n## {title}\n\n");
    *text += if file { "| flag | in the file | |\n|---|---|---|\n" } else { "| flag | |\n|---|---|\n" };
}

fn row(text: &mut String, flag: &Arg, key: Option<&str>) {
    let mut shown = format!("--{}", long(flag));
    if let Some(short) = flag.get_short() {
        shown = format!("-{short}, {shown}");
    }
    if flag.get_action().takes_values() {
        let names: Vec<&str> =
            flag.get_value_names().unwrap_or_default().iter().map(|name| name.as_str()).collect();
        shown += &format!(" {}", names.join(" "));
    }
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    let defaults: Vec<_> = flag.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let default =
        if defaults.is_empty() { String::new() } else { format!(" [default: {}]", defaults.join(",")) };
    let in_file = match key {
        Some(key) => format!(" `{key}` |"),
        None => " |".to_owned(),
    };
    let escaped = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let said = escaped(&format!("{help}{default}"));
    let _ = writeln!(text, "| `{shown}` |{in_file} {said} |");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_the_book_is_of_these_flags() {
        let kept = include_str!("../../../docs/configuration.md");
        let made = page();
        let different = kept.lines().zip(made.lines()).find(|(kept, made)| kept != made);
        assert_eq!(different, None, "coracle help settings >docs/configuration.md");
        assert_eq!(kept.len(), made.len(), "coracle help settings >docs/configuration.md");
    }

    /// Every key that the file takes is on the page, and every key on the page is one that the file takes.
    #[test]
    fn the_page_and_the_file_know_the_same_keys() {
        let groups = groups();
        let keys_at = |place: Place| -> BTreeSet<String> {
            let of = groups.iter().filter(|group| group.place == place);
            of.flat_map(|group| group.flags.iter().map(|flag| camel(&long(flag)))).collect()
        };
        let sections =
            ["nodeLifecycle", "apiServer", "authentication", "authorization", "encryption", "backup"];
        for section in sections {
            let page = keys_at(Place::Section(section));
            assert_eq!(page, crate::config::keys(Some(section)), "{section}");
        }
        // Fields of the kubelet's that may stand at the top, too, are told in the head of the page.
        let beside = [
            "maxPods",
            "podPidsLimit",
            "seccompDefault",
            "protectKernelDefaults",
            "imagePullCredentialsVerificationPolicy",
            "preloadedImagesVerificationAllowlist",
        ];
        let others = sections.iter().chain(&["kubelet"]).chain(&beside);
        let mut page = keys_at(Place::Top);
        page.extend(others.map(|name| (*name).to_owned()));
        assert_eq!(page, crate::config::keys(None));
        assert!(beside.iter().all(|name| HEAD.contains(name)), "told in the head");
    }
}
