//! A server under attack, and the client that is to notice nothing.

use super::Error;
use super::wire::{Target, Who};
use crate::Cluster;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Gets of the other client for each attack.
const LEAST_GETS: usize = 20;
/// Between two gets of the other client.
const EVERY: Duration = Duration::from_millis(5);
/// Longest the server may take to give descriptors and memory back after an attack's connections are closed.
const GIVES_BACK: Duration = Duration::from_secs(20);
/// Descriptors that may be open for other reasons than before an attack.
const SPARE: usize = 32;
/// Memory beyond an idle server's that may be in use for other reasons: what attacks have stored, and documents that are kept
/// for a while (OpenAPI's take some 10 MiB).
const SPARE_MIB: usize = 64;

/// An object of 900 kB.
pub const LARGE: &str = "/api/v1/namespaces/default/configmaps/large";

/// Namespaces whose writes are recorded at each level.
pub const LEVELS: [&str; 3] = ["metadata", "request", "requestresponse"];

const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n\
    - {level: Metadata, namespaces: [metadata]}\n\
    - {level: Request, namespaces: [request]}\n\
    - {level: RequestResponse, namespaces: [requestresponse]}\n\
    - {level: None}\n";

pub struct Stage {
    pub cluster: Cluster,
    /// As somebody with the role `edit` in the attacked namespaces, and flow control's lowest priority.
    pub attacker: Target,
    /// Likewise, but another user.
    pub other: Target,
    /// The server's memory before all attacks.
    idle_mib: usize,
    _policy: tempfile::NamedTempFile,
}

impl Stage {
    pub fn start(arguments: &[&str]) -> Result<Self, Error> {
        super::allow_descriptors()?;
        let policy = tempfile::NamedTempFile::new()?;
        std::fs::write(policy.path(), AUDIT_POLICY)?;
        let file = policy.path().to_str().ok_or("a path")?;
        let audited = ["--audit-policy-file", file, "--audit-log-path", "/dev/null"];
        let cluster = Cluster::start(&[&audited[..], arguments].concat());
        for namespace in LEVELS {
            cluster.ok(&format!("kubectl create namespace {namespace}"));
        }
        for name in ["mallory", "alice"] {
            cluster.ok(&format!("kubectl create serviceaccount {name}"));
            cluster.ok(&format!(
                "kubectl create clusterrolebinding {name} --clusterrole=edit --serviceaccount=default:{name}"
            ));
        }
        let token = |name: &str| cluster.ok(&format!("kubectl create token {name}")).trim().to_owned();
        let pki = cluster.data_dir().join("pki");
        let target = |name: &str| Target::new(cluster.port(), &pki, Who::Token(token(name)));
        let (attacker, other) = (target("mallory")?, target("alice")?);
        cluster.ok("kubectl create configmap seen --from-literal=a=b");
        cluster.ok("head -c 900000 /dev/zero | tr '\\0' a >large && kubectl create configmap large --from-file=large");
        let idle_mib = memory_mib(cluster.pid());
        Ok(Self { cluster, attacker, other, idle_mib, _policy: policy })
    }

    /// The attacker without credentials.
    pub fn stranger(&self) -> Target {
        self.attacker.clone().as_nobody()
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.cluster.pid())).map_or(0, Iterator::count)
    }

    fn memory_mib(&self) -> usize {
        memory_mib(self.cluster.pid())
    }

    /// The server holds no more than it did before: these descriptors, and an idle server's memory.
    fn is_given_back(&self, descriptors: usize) -> bool {
        self.descriptors() <= descriptors + SPARE && self.memory_mib() <= self.idle_mib + SPARE_MIB
    }

    /// Runs an attack. It returns what it saw, with whatever it holds open, which is closed then.
    pub async fn under<T>(
        &self,
        name: &'static str,
        attack: impl Future<Output = Result<(String, T), Error>>,
    ) -> Result<Figures, Error> {
        let (memory, descriptors) = (self.memory_mib(), self.descriptors());
        let client = Client::start(self.other.clone());
        let peaks = Cell::new((memory, descriptors));
        let look = || {
            let (most, open) = peaks.get();
            peaks.set((most.max(self.memory_mib()), open.max(self.descriptors())));
        };
        let watch = async {
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                look();
            }
        };
        let done = tokio::select! {
            done = attack => done,
            () = watch => Err("nobody watches without end".into()),
        };
        look();
        let (saw, held) = done?;
        drop(held);
        let seen = client.stop()?;
        let began = Instant::now();
        while !self.is_given_back(descriptors) && began.elapsed() < GIVES_BACK {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let millis = |percent: usize| percentile(&seen.latencies, percent);
        Ok(Figures {
            name,
            saw,
            gets: seen.latencies.len(),
            failed: seen.failed,
            p50_ms: millis(50),
            p99_ms: millis(99),
            worst_ms: millis(100),
            idle_mib: self.idle_mib,
            memory_mib: (memory, peaks.get().0, self.memory_mib()),
            descriptors: (descriptors, peaks.get().1, self.descriptors()),
        })
    }
}

/// Anonymous memory of a process that is in RAM: what it has allocated, without the pages of its own file.
fn memory_mib(pid: u32) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kib.unwrap_or_default() / 1024
}

/// What an attack did. Memory and descriptors are the server's before, at most, and after.
pub struct Figures {
    pub name: &'static str,
    pub saw: String,
    pub gets: usize,
    /// Gets of the other client that were not answered with 200.
    pub failed: usize,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub worst_ms: f64,
    idle_mib: usize,
    pub memory_mib: (usize, usize, usize),
    pub descriptors: (usize, usize, usize),
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((memory, most, left), (open, peak, after)) = (self.memory_mib, self.descriptors);
        write!(
            f,
            "| {} | {} | {} | {:.1} | {:.1} | {:.1} | {memory} / {most} / {left} | {open} / {peak} / {after} | {} |",
            self.name, self.gets, self.failed, self.p50_ms, self.p99_ms, self.worst_ms, self.saw
        )
    }
}

impl Figures {
    pub const HEAD: &str = "| attack | gets | failed | p50 ms | p99 ms | worst ms | memory MiB before / most / after | \
        descriptors before / most / after | seen |\n|---|---|---|---|---|---|---|---|---|";

    /// What holds of every attack; the mistakes.
    pub fn judge(&self, p99_ms: f64, grows_mib: usize) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut note = |bad: bool, what: String| {
            if bad {
                wrong.push(format!("{}: {what}", self.name));
            }
        };
        note(self.gets + self.failed < LEAST_GETS, format!("only {} gets of the other client", self.gets));
        note(self.failed > 0, format!("{} gets of the other client failed", self.failed));
        note(self.p99_ms > p99_ms, format!("p99 {:.1} ms of the other client's gets", self.p99_ms));
        let (before, most, after) = self.memory_mib;
        note(most > before + grows_mib, format!("memory went from {before} to {most} MiB"));
        note(
            after > self.idle_mib + SPARE_MIB,
            format!("{after} MiB are kept, {} were there at first", self.idle_mib),
        );
        let (before, _, after) = self.descriptors;
        note(after > before + SPARE, format!("{before} descriptors before and {after} after"));
        wrong
    }
}

/// The smallest value that at least `percent` of the sorted values do not exceed, in milliseconds.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map_or(f64::NAN, |value| value.as_secs_f64() * 1000.0)
}

struct Seen {
    latencies: Vec<Duration>,
    failed: usize,
}

/// The other client, in a thread and a runtime of its own, so that the attack's own work does not delay it.
struct Client {
    stop: Arc<AtomicBool>,
    ready: Arc<AtomicUsize>,
    thread: std::thread::JoinHandle<Result<Seen, Error>>,
}

impl Client {
    fn start(target: Target) -> Self {
        let (stop, ready) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (until, counted) = (stop.clone(), ready.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(gets(&target, &until, &counted))
        });
        let client = Self { stop, ready, thread };
        // The attack begins when the other client is at work.
        while client.ready.load(Ordering::Relaxed) == 0 && !client.thread.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        client
    }

    /// After as many gets as say something: the server ends some attacks within a moment.
    fn stop(self) -> Result<Seen, Error> {
        while self.ready.load(Ordering::Relaxed) < LEAST_GETS && !self.thread.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.stop.store(true, Ordering::Relaxed);
        let mut seen = self.thread.join().map_err(|_| "the other client panicked")??;
        seen.latencies.sort_unstable();
        Ok(seen)
    }
}

async fn gets(target: &Target, until: &AtomicBool, counted: &AtomicUsize) -> Result<Seen, Error> {
    let mut connection = target.http1().await?;
    let mut seen = Seen { latencies: Vec::new(), failed: 0 };
    while !until.load(Ordering::Relaxed) {
        let sent = Instant::now();
        match connection.get("/api/v1/namespaces/default/configmaps/seen").await {
            Ok(200) => seen.latencies.push(sent.elapsed()),
            Ok(_) => seen.failed += 1,
            Err(_) => {
                seen.failed += 1;
                connection = target.http1().await?;
            }
        }
        counted.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(EVERY).await;
    }
    Ok(seen)
}
