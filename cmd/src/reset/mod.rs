//! `coracle reset`: takes away what a node leaves on its machine when the server has ended: pods with their networks,
//! mounts and packet rules, and its keys. Containers outlive the server on purpose, so this is a step of its own. What
//! the cluster has stored stays in `<data-dir>/db`.

mod held;
mod pods;

use crate::args::ResetArgs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code 0: nothing is left. What had to be forced is told, what could not be taken away is named, and the rest is still
/// tried.
pub async fn command(args: ResetArgs) -> ExitCode {
    let mut failures = Vec::new();
    let root = args.root_dir.clone().unwrap_or_else(|| args.data_dir.join("kubelet"));
    let uids = names_in(&root.join("pods"));
    let pods = pods::take_away(&args.container_runtime_endpoint, &uids).await;
    failures.extend(pods.failures.iter().map(|why| format!("pods: {why}")));
    for what in &pods.forced {
        eprintln!("coracle reset: forced: {what}");
    }
    if let Err(why) = unmount_below(&root) {
        failures.push(format!("mounts: {why}"));
    }
    if let Err(why) = coracle_proxy::clean_up().await {
        failures.push(format!("packet rules: {why}"));
    }
    if let Err(why) = coracle_proxy::policy::clean_up().await {
        failures.push(format!("packet rules of NetworkPolicies: {}", coracle_api::error::chain(&why)));
    }
    if let Err(why) = coracle_proxy::network::clean_up().await {
        failures.push(format!("routes: {}", coracle_api::error::chain(&why)));
    }
    if !args.keep_pki
        && let Err(why) = remove(&args.data_dir.join("pki"))
    {
        failures.push(format!("keys: {why}"));
    }
    for failure in &failures {
        eprintln!("coracle reset: {failure}");
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The UIDs of the pods that this node knew.
fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn remove_file(path: &Path) -> Result<(), String> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

/// A server's authorities could go on signing, and a joined machine's certificates would go on being believed.
fn remove(dir: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// The innermost mounts first (proc(5), mountinfo: the fifth field is the mount point, blanks are octal). Says which.
fn unmount_below(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").map_err(|e| e.to_string())?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let mut below: Vec<PathBuf> =
        points.map(|p| PathBuf::from(p.replace("\\040", " "))).filter(|p| p.starts_with(dir)).collect();
    below.sort();
    for point in below.iter().rev() {
        nix::mount::umount2(point, nix::mount::MntFlags::MNT_DETACH)
            .map_err(|e| format!("{}: {e}", point.display()))?;
    }
    Ok(below)
}
