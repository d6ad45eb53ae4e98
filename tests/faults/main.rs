//! `faults [--seconds N] [--seed S] [--only KIND]`: three servers on three members of etcd, each in a network namespace of its
//! own; one fault after the other, of a printed seed, while clients write; then what they saw is judged.
//!
//! ```text
//! world     the machines: namespaces on one bridge, processes in them
//! fault     what goes wrong, and how it is put right
//! clients   counters that are raised by compare-and-swap, reads, and one watch at each server
//! history   whether all of that can have happened to one copy of each object, one step at a time
//! ```
//! Needs root, ip(8), unshare(1) and etcd; says so and succeeds where it cannot have them. It runs in namespaces of its own for
//! processes, mounts and the network, so that nothing outlives it.

mod clients;
mod fault;
mod history;
mod world;

use clients::Clients;
use fault::Kind;
use history::History;
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
    for program in ["ip", "unshare", "etcd"] {
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

/// How long nothing was written, by the kind of fault.
type Gaps = BTreeMap<&'static str, Vec<Duration>>;

async fn run(settings: &Settings) -> Result<ExitCode, Error> {
    let mut random = StdRng::seed_from_u64(settings.seed);
    let mut world = World::start().await?;
    let clients = Clients::start(&world).await?;
    let (begun, mut gaps) = (Instant::now(), Gaps::new());
    while begun.elapsed() < settings.time {
        let kind = settings.only.unwrap_or_else(|| Kind::any(&mut random));
        let lasts = Duration::from_millis(random.random_range(LASTS));
        let since = Instant::now();
        let told = fault::carry_out(&mut world, kind, lasts, &mut random).await?;
        clients
            .written_since(Instant::now(), HEALED_WITHIN)
            .await
            .map_err(|why| format!("seed {}: after {told}: {why}\n{}", settings.seed, world.logs()))?;
        let gap = clients.longest_gap(since);
        println!(
            "{:>6.1} s  {told}; nothing was written for {} ms",
            begun.elapsed().as_secs_f64(),
            gap.as_millis()
        );
        gaps.entry(kind.name()).or_default().push(gap);
    }
    let history = clients.stop(HEALED_WITHIN).await.map_err(|why| format!("{why}\n{}", world.logs()))?;
    report(&history, &gaps);
    let wrong = history.judge();
    wrong.iter().take(20).for_each(|text| println!("WRONG: {text}"));
    if wrong.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("seed {}\n{}", settings.seed, world.logs());
    Ok(ExitCode::FAILURE)
}

fn report(history: &History, gaps: &Gaps) {
    println!("{history}");
    println!("{:<18} {:>5} {:>9} {:>9}", "fault", "times", "p50 ms", "max ms");
    for (kind, gaps) in gaps {
        let mut gaps: Vec<u128> = gaps.iter().map(Duration::as_millis).collect();
        gaps.sort_unstable();
        let (middle, last) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
        println!("{kind:<18} {:>5} {middle:>9} {last:>9}", gaps.len());
    }
}
