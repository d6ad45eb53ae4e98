//! `faults [--seconds N] [--seed S] [--only KIND]`: three servers on three members of etcd and three agents, each in a network
//! namespace of its own; one fault after the other, of a printed seed, while clients write and pods run; then what they saw is
//! judged.
//!
//! ```text
//! world     the machines: namespaces on one bridge, processes in them
//! fault     what goes wrong, and how it is put right
//! clients   counters that are raised by compare-and-swap, reads, and one watch at each server
//! nodes     pods on the agents: Leases that go on, containers that are neither restarted nor doubled
//! history   whether all of that can have happened to one copy of each object, one step at a time
//! ```
//! The agents are whole; their container runtime is one that remembers what it would run, and outlives them.
//! Needs root, ip(8), unshare(1), nsenter(1) and etcd; says so and succeeds where it cannot have them. It runs in namespaces of
//! its own for processes, mounts and the network, so that nothing outlives it.

mod clients;
#[path = "../../kubelet/tests/node/cri_socket.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests of the kubelet, which use all of it")]
mod cri_socket;
#[path = "../../kubelet/tests/node/fake_runtime.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests of the kubelet, which use all of it")]
mod fake_runtime;
mod fault;
mod history;
mod nodes;
mod world;

use clients::Clients;
use fault::Kind;
use jiff::Timestamp;
use nodes::{Nodes, Running, Runtimes};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use world::World;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Set in the process that runs in namespaces of its own.
const INSIDE: &str = "CORACLE_FAULTS_INSIDE";
/// How long a fault lasts.
const LASTS: std::ops::Range<u64> = 2_000..6_000;
/// After the last fault everything has to be well again within this time.
const HEALED_WITHIN: Duration = Duration::from_secs(40);

struct Settings {
    time: Duration,
    seed: u64,
    only: Option<Kind>,
}

impl Settings {
    fn from(arguments: &[String]) -> Result<Self, Error> {
        let mut settings = Self { time: Duration::from_secs(120), seed: rand::rng().random(), only: None };
        for pair in arguments.chunks(2) {
            let [flag, value] = pair else { return Err(format!("{} takes a value", pair[0]).into()) };
            match flag.as_str() {
                "--seconds" => settings.time = Duration::from_secs(value.parse()?),
                "--seed" => settings.seed = value.parse()?,
                "--only" => settings.only = Some(Kind::parse(value)?),
                other => return Err(format!("{other} is no flag: --seconds N, --seed S, --only KIND").into()),
            }
        }
        Ok(settings)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match Settings::from(&arguments) {
        Ok(settings) if std::env::var_os(INSIDE).is_some() => inside(&settings),
        Ok(settings) => outside(&arguments, settings.seed),
        Err(error) => Err(error),
    };
    done.unwrap_or_else(|error| {
        eprintln!("faults: {error}");
        ExitCode::from(2)
    })
}

/// Runs this program again where nothing can outlive it.
fn outside(arguments: &[String], seed: u64) -> Result<ExitCode, Error> {
    if !nix::unistd::geteuid().is_root() {
        coracle_tests::skipped("it needs root, for namespaces");
        return Ok(ExitCode::SUCCESS);
    }
    for program in ["ip", "unshare", "nsenter", "etcd"] {
        if Command::new("which").arg(program).output().map_or(true, |found| !found.status.success()) {
            coracle_tests::skipped(&format!("it needs {program}"));
            return Ok(ExitCode::SUCCESS);
        }
    }
    let mut words = arguments.to_vec();
    if !words.iter().any(|word| word == "--seed") {
        words.extend(["--seed".to_owned(), seed.to_string()]);
    }
    let status = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"])
        .arg(std::env::current_exe()?)
        .args(words)
        .env(INSIDE, "1")
        .status()?;
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(2)).unwrap_or(2)))
}

fn inside(settings: &Settings) -> Result<ExitCode, Error> {
    // Ring is the only provider here; a second installation is refused, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    println!("seed {}, {} s", settings.seed, settings.time.as_secs());
    let done = runtime.block_on(run(settings));
    runtime.shutdown_background();
    done
}

/// How long something did not work, by the kind of fault.
type Gaps = BTreeMap<&'static str, Vec<Duration>>;

/// What was missed for how long.
#[derive(Default)]
struct Missed {
    writes: Gaps,
    /// Renewals of the Leases of agents that nothing was done to.
    leases: Gaps,
    /// Pods of an agent that was lost.
    pods: Gaps,
}

struct Scene {
    world: World,
    clients: Clients,
    nodes: Nodes,
    running: Running,
    begun: Instant,
    missed: Missed,
}

impl Scene {
    async fn set() -> Result<Self, Error> {
        let runtimes = Runtimes::serve();
        let world = World::start(&runtimes.paths()).await?;
        let clients = Clients::start(&world).await?;
        let started = Nodes::start(&world, runtimes).await;
        let (nodes, running) = started.map_err(|why| format!("{why}\n{}", world.logs()))?;
        Ok(Self { world, clients, nodes, running, begun: Instant::now(), missed: Missed::default() })
    }

    /// One fault, and what it did to clients and pods.
    async fn play(&mut self, kind: Kind, lasts: Duration, random: &mut StdRng) -> Result<(), Error> {
        let (since, at) = (Instant::now(), Timestamp::now());
        let done = fault::carry_out(&mut self.world, &self.nodes, kind, lasts, random).await?;
        let after = |why: &dyn std::fmt::Display| format!("after {}: {why}", done.told);
        self.clients.written_since(Instant::now(), HEALED_WITHIN).await.map_err(|why| after(&why))?;
        self.nodes.renewed_since(Timestamp::now()).await.map_err(|why| after(&why))?;
        let now = self.nodes.settled().await.map_err(|why| after(&why))?;
        let changes = self.running.changes(&now);
        if !kind.loses_pods() && !changes.is_empty() {
            return Err(after(&changes.join("\n")).into());
        }
        self.running = now;
        let written = self.clients.longest_gap(since);
        let renewed = self.nodes.longest_gap(at, done.agent.as_deref());
        println!(
            "{:>6.1} s  {}; nothing was written for {} ms, no Lease renewed for {} ms",
            self.begun.elapsed().as_secs_f64(),
            done.told,
            written.as_millis(),
            renewed.as_millis()
        );
        self.missed.writes.entry(kind.name()).or_default().push(written);
        self.missed.leases.entry(kind.name()).or_default().push(renewed);
        if let Some(missed) = done.replaced_after {
            self.missed.pods.entry(kind.name()).or_default().push(missed);
        }
        Ok(())
    }
}

async fn run(settings: &Settings) -> Result<ExitCode, Error> {
    let mut random = StdRng::seed_from_u64(settings.seed);
    let mut scene = Scene::set().await?;
    while scene.begun.elapsed() < settings.time {
        let kind = settings.only.unwrap_or_else(|| Kind::any(&mut random));
        let lasts = Duration::from_millis(random.random_range(LASTS));
        let played = scene.play(kind, lasts, &mut random).await;
        played.map_err(|why| format!("seed {}: {why}\n{}", settings.seed, scene.world.logs()))?;
    }
    let Scene { world, clients, mut nodes, missed, .. } = scene;
    let history = clients.stop(HEALED_WITHIN).await.map_err(|why| format!("{why}\n{}", world.logs()))?;
    println!("{history}");
    report("nothing was written", &missed.writes);
    report("no Lease was renewed", &missed.leases);
    report("a lost node's pods were missed", &missed.pods);
    let wrong: Vec<String> = history.judge().into_iter().chain(nodes.wrong()).collect();
    wrong.iter().take(20).for_each(|text| println!("WRONG: {text}"));
    if wrong.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("seed {}\n{}", settings.seed, world.logs());
    Ok(ExitCode::FAILURE)
}

fn report(what: &str, gaps: &Gaps) {
    if gaps.is_empty() {
        return;
    }
    println!("\n{what:<32} {:>5} {:>9} {:>9}", "times", "p50 ms", "max ms");
    for (kind, gaps) in gaps {
        let mut gaps: Vec<u128> = gaps.iter().map(Duration::as_millis).collect();
        gaps.sort_unstable();
        let (middle, last) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
        println!("{kind:<32} {:>5} {middle:>9} {last:>9}", gaps.len());
    }
}
