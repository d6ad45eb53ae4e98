//! Storms over a running server, and what it keeps of them: memory, tasks, descriptors, watches, threads, lines of its log.
//!
//! Each storm leaves the cluster as it found it. [`Field::under`] runs one, and waits until the server has given back what
//! it took, or for as long as it has for that.

mod figures;
pub mod storms;

pub use figures::Figures;

use crate::Cluster;
use crate::load::Error;
use crate::load::wire::{Target, Who};
use std::fmt;
use std::time::{Duration, Instant};

/// Between two looks at a server under a storm.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// A server with simulated nodes, and somebody who may do everything there.
pub struct Field {
    pub cluster: Cluster,
    pub admin: Target,
}

impl Field {
    pub fn start(nodes: usize) -> Result<Self, Error> {
        crate::load::allow_descriptors()?;
        let cluster = Cluster::start(&["--simulate-nodes", &nodes.to_string()]);
        cluster.ok("kubectl wait node --all --for=condition=Ready --timeout=300s");
        cluster.ok("kubectl create serviceaccount soak");
        cluster.ok("kubectl create clusterrolebinding soak --clusterrole=cluster-admin --serviceaccount=default:soak");
        let token = cluster.ok("kubectl create token soak --duration=24h").trim().to_owned();
        let admin = Target::new(cluster.port(), &cluster.data_dir().join("pki"), Who::Token(token))?;
        Ok(Self { cluster, admin })
    }

    pub fn figures(&self) -> Result<Figures, Error> {
        Figures::of(&self.cluster)
    }

    /// Runs a storm. Afterwards `settled` is asked until it says so of the server before and now, for `patience` at most.
    pub async fn under(
        &self,
        name: &'static str,
        storm: impl Future<Output = Result<String, Error>>,
        patience: Duration,
        settled: impl Fn(&Figures, &Figures) -> bool,
    ) -> Result<Round, Error> {
        let before = self.figures()?;
        let mut peak = before.clone();
        let mut storm = std::pin::pin!(storm);
        let mut looks = tokio::time::interval(LOOKS_EVERY);
        let seen = loop {
            tokio::select! {
                seen = &mut storm => break seen?,
                _ = looks.tick() => peak = peak.most(&self.figures()?),
            }
        };
        let (ended, lines) = (Instant::now(), self.cluster.log().lines().count());
        let after = loop {
            tokio::time::sleep(LOOKS_EVERY).await;
            let now = self.figures()?;
            if ended.elapsed() >= patience || settled(&before, &now) {
                break now;
            }
        };
        let peak = peak.most(&after);
        let quiet = ended.elapsed();
        let lines = self.cluster.log().lines().count() - lines;
        Ok(Round { name, seen, before, peak, after, quiet, lines })
    }
}

/// What one storm did.
pub struct Round {
    pub name: &'static str,
    pub seen: String,
    pub before: Figures,
    pub peak: Figures,
    pub after: Figures,
    /// Between the storm's end and `after`.
    pub quiet: Duration,
    /// Written to the log in that time.
    pub lines: usize,
}

impl Round {
    pub const HEAD: &str = "| storm | RSS MiB before / peak / after | tasks | descriptors | inotify watches | threads | watches | \
        history MiB | log lines | seen |\n|---|---|---|---|---|---|---|---|---|---|";

    /// What is not as it was, with these shares and numbers to spare.
    pub fn judge(&self, rss_percent: f64, spare: usize) -> Vec<String> {
        let mut wrong = Vec::new();
        let (before, after) = (&self.before, &self.after);
        if after.rss_mib > before.rss_mib * (1.0 + rss_percent / 100.0) {
            wrong.push(format!("{}: {:.0} MiB of {:.0}", self.name, after.rss_mib, before.rss_mib));
        }
        for (what, before, after) in [
            ("tasks", before.tasks, after.tasks),
            ("descriptors", before.descriptors, after.descriptors),
            ("inotify watches", before.inotify, after.inotify),
            ("threads", before.threads, after.threads),
            ("watches", before.watches, after.watches),
        ] {
            if after > before + spare {
                wrong.push(format!("{}: {after} {what}, {before} before", self.name));
            }
        }
        wrong
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [&self.before, &self.peak, &self.after];
        let row = |of: &dyn Fn(&Figures) -> String| all.map(of).join(" / ");
        write!(
            f,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} in {} s | {} |",
            self.name,
            row(&|x| format!("{:.0}", x.rss_mib)),
            row(&|x| x.tasks.to_string()),
            row(&|x| x.descriptors.to_string()),
            row(&|x| x.inotify.to_string()),
            row(&|x| x.threads.to_string()),
            row(&|x| x.watches.to_string()),
            row(&|x| format!("{:.1}", x.history_mib)),
            self.lines,
            self.quiet.as_secs(),
            self.seen
        )
    }
}
