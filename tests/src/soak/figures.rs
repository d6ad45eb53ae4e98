//! What a server takes, from the kernel and from its metrics.

use crate::Cluster;
use crate::load::Error;

#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub rss_mib: f64,
    pub threads: usize,
    pub descriptors: usize,
    pub tasks: usize,
    pub inotify: usize,
    /// Of clients and of the server's own components.
    pub watches: usize,
    pub history_mib: f64,
    /// The page of metrics.
    pub page: String,
}

impl Figures {
    /// Everything.
    pub fn of(cluster: &Cluster) -> Result<Self, Error> {
        let answer = cluster.raw("GET", "/metrics", "");
        if answer.code != 200 {
            return Err(format!("/metrics: {answer:?}").into());
        }
        let page = answer.text;
        // The one that asks is a task and a socket too.
        Ok(Self {
            tasks: sum(&page, "coracle_process_tasks"),
            inotify: sum(&page, "coracle_process_inotify_watches"),
            watches: sum(&page, "coracle_cache_watches"),
            history_mib: f64::from(u32::try_from(sum(&page, "coracle_store_history_bytes"))?)
                / f64::from(1 << 20),
            page,
            ..Self::of_process(cluster)?
        })
    }

    /// What the kernel alone tells; asks nothing of the server.
    pub fn of_process(cluster: &Cluster) -> Result<Self, Error> {
        let dir = format!("/proc/{}", cluster.pid());
        let status = std::fs::read_to_string(format!("{dir}/status"))?;
        let field = |name: &str| -> Result<u32, Error> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
            Ok(line.ok_or_else(|| format!("no {name}"))?.parse()?)
        };
        Ok(Self {
            rss_mib: f64::from(field("VmRSS:")?) / 1024.0,
            threads: usize::try_from(field("Threads:")?)?,
            descriptors: std::fs::read_dir(format!("{dir}/fd"))?.count(),
            ..Self::default()
        })
    }

    /// The more of each.
    #[must_use]
    pub fn most(&self, other: &Self) -> Self {
        Self {
            rss_mib: self.rss_mib.max(other.rss_mib),
            threads: self.threads.max(other.threads),
            descriptors: self.descriptors.max(other.descriptors),
            tasks: self.tasks.max(other.tasks),
            inotify: self.inotify.max(other.inotify),
            watches: self.watches.max(other.watches),
            history_mib: self.history_mib.max(other.history_mib),
            page: String::new(),
        }
    }

    /// The sample of `name` with this text among its labels.
    pub fn sample(&self, name: &str, labels: &str) -> Option<usize> {
        samples(&self.page, name).find(|(found, _)| found.contains(labels)).map(|(_, value)| value)
    }
}

/// Labels and values of a metric.
fn samples<'a>(page: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, usize)> {
    let rest = page.lines().filter_map(move |line| line.strip_prefix(name));
    rest.filter(|rest| rest.starts_with([' ', '{'])).filter_map(|rest| {
        let (labels, value) = rest.rsplit_once(' ')?;
        Some((labels, value.parse().ok()?))
    })
}

fn sum(page: &str, name: &str) -> usize {
    samples(page, name).map(|(_, value)| value).sum()
}
