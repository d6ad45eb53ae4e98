//! The report as people read it.

use super::report::{Report, Slow};
use crate::table::left;
use jiff::SignedDuration;
use std::fmt::Write;

/// How wide the names of lines are.
const NAME: usize = 14;

pub fn text(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |name: &str, said: &str| {
        let _ = writeln!(text, "{name:NAME$}{said}");
    };
    let well = if report.is_well() { "all is well".to_owned() } else { report.wrong.join("; ") };
    line("Status", &well);
    line("Version", &format!("Kubernetes {}, coracle {}", report.kubernetes, report.coracle));
    for node in &report.nodes {
        let state = if node.ready { "Ready" } else { "NotReady" };
        let problem = node.problem.iter().map(|why| format!("  {why}")).collect::<String>();
        line("Node", &format!("{}  {state}  {}{problem}", node.name, node.version));
    }
    if let Some(pods) = &report.pods {
        let counts: Vec<String> =
            pods.by_phase.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
        line("Pods", if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }.as_str());
        pods.not_ready.iter().for_each(|pod| line("  not ready", &format!("{}  {}", pod.pod, pod.why)));
    }
    for warning in report.warnings.iter().flatten() {
        let times = if warning.count > 1 { format!(" ({} times)", warning.count) } else { String::new() };
        line("Warning", &format!("{}: {} {}{times}", warning.object, warning.reason, warning.message.trim()));
    }
    if let Some(disk) = &report.disk {
        line("Disk", &format!("{} of {} free", bytes(disk.free_bytes), bytes(disk.bytes)));
    }
    if let Some(store) = &report.store {
        let refuses = if store.read_only { ", takes no writes" } else { "" };
        line("Store", &format!("{} objects, {}{refuses}", store.objects, bytes(store.bytes)));
    }
    if let Some((name, end)) = report.certificates.iter().min_by_key(|(_, end)| **end) {
        line(
            "Certificates",
            &format!("the first to end is {name}, {}", until(*end - report.now.as_second())),
        );
    }
    let backup = report.last_backup.map(|at| format!("{} ago", age(report.now.as_second() - at)));
    line("Last backup", backup.as_deref().unwrap_or("none"));
    report.slow.iter().for_each(|slow| line("Slow", &slow_line(slow)));
    text
}

fn slow_line(slow: &Slow) -> String {
    format!("{} takes {:.0} ms, the mean of {}", slow.request, slow.mean_seconds * 1000.0, slow.count)
}

fn age(seconds: i64) -> String {
    left(SignedDuration::from_secs(seconds.max(0)))
}

fn until(seconds: i64) -> String {
    if seconds < 0 { format!("over for {}", age(-seconds)) } else { format!("in {}", age(seconds)) }
}

fn bytes(count: f64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let fits = units.iter().find(|(_, shift)| count >= f64::from(1_u32 << shift));
    match fits {
        Some((unit, shift)) => format!("{:.1} {unit}", count / f64::from(1_u32 << shift)),
        None => format!("{count:.0} B"),
    }
}
