//! `bench [--quick] [--check] [--hour] [NAME...]`: measures the release binary and prints its figures as a table.
//!
//! `CORACLE_BIN` names the binary (default: target/release/coracle). Data directories are made under `TMPDIR`; put it
//! on the disk to be measured. With `--check` the exit code says whether every goal (goals.rs) holds; `--hour`
//! measures what is left an hour after a storm, too.

mod controllers;
mod crowd;
mod disk;
mod dns;
#[path = "../../storage/tests/driver/mod.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests of volumes, which use all of it")]
mod driver;
mod encryption;
mod etcd;
mod extend;
mod goals;
mod http;
mod idle;
mod large;
mod load;
mod machine;
mod matrix;
mod pods;
mod process;
mod reads;
mod recovery;
mod requests;
mod schedule;
mod scheduler;
mod server;
mod servers;
mod services;
mod start;
mod storm;
mod table;
mod typed;
mod volumes;
mod watch;
mod writes;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use table::Row;

/// A benchmark that fails ends with a text for people; nobody handles it in any other way.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// What every benchmark is told.
pub struct Settings {
    pub binary: PathBuf,
    pub quick: bool,
    /// Whether there is an hour to see what is left of a storm then.
    pub hour: bool,
}

impl Settings {
    /// A load's time.
    pub fn time(&self, seconds: u64) -> Duration {
        if self.quick { Duration::from_secs(seconds.div_ceil(5)) } else { Duration::from_secs(seconds) }
    }

    /// How many of something to make or try.
    pub fn amount(&self, n: usize) -> usize {
        if self.quick { n.div_ceil(5) } else { n }
    }
}

const NAMES: [&str; 32] = [
    "size",
    "start",
    "restart",
    "recovery",
    "idle",
    "disk",
    "etcd",
    "servers",
    "agents",
    "large",
    "large-etcd",
    "writes",
    "typed",
    "encryption",
    "reads",
    "matrix",
    "memory",
    "watch",
    "crowd",
    "dns",
    "services",
    "extend",
    "schedule",
    "scheduler",
    "backlog",
    "affinity",
    "preemption",
    "storm",
    "controllers",
    "pods",
    "resting",
    "volumes",
];

async fn run(name: &str, settings: &Settings) -> Result<Vec<Row>, Error> {
    match name {
        "size" => start::size(settings),
        "start" => start::cold(settings).await,
        "restart" => start::restart(settings).await,
        "recovery" => recovery::run(settings).await,
        "idle" => idle::run(settings).await,
        "disk" => disk::run(settings),
        "etcd" => etcd::run(settings).await,
        "servers" => servers::run(settings).await,
        "agents" => servers::crowds(settings).await,
        "large" => large::on_sled(settings).await,
        "large-etcd" => large::on_etcd(settings).await,
        "writes" => writes::run(settings).await,
        "typed" => typed::run(settings).await,
        "encryption" => encryption::run(settings).await,
        "reads" => reads::run(settings).await,
        "matrix" => matrix::run(settings).await,
        "memory" => matrix::memory(settings).await,
        "watch" => watch::run(settings).await,
        "dns" => dns::run(settings).await,
        "services" => services::run(settings).await,
        "crowd" => crowd::run(settings).await,
        "extend" => extend::run(settings).await,
        "schedule" => schedule::run(settings).await,
        "scheduler" => scheduler::run(settings).await,
        "backlog" => scheduler::backlogs(settings).await,
        "affinity" => scheduler::affinity(settings).await,
        "preemption" => scheduler::preemption(settings).await,
        "storm" => storm::run(settings).await,
        "controllers" => controllers::run(settings).await,
        "pods" => pods::run(settings).await,
        "resting" => pods::resting(settings).await,
        "volumes" => volumes::run(settings).await,
        _ => Err(format!("no such benchmark; there are {}", NAMES.join(", ")).into()),
    }
}

struct Arguments {
    quick: bool,
    check: bool,
    hour: bool,
    names: Vec<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments { quick: false, check: false, hour: false, names: Vec::new() };
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => parsed.quick = true,
            "--check" => parsed.check = true,
            "--hour" => parsed.hour = true,
            name if NAMES.contains(&name) => parsed.names.push(argument),
            _ => return Err(format!("usage: bench [--quick] [--check] [--hour] [{}]...", NAMES.join("|"))),
        }
    }
    Ok(parsed)
}

fn binary() -> Result<PathBuf, String> {
    let path = std::env::var_os("CORACLE_BIN").map_or_else(|| "target/release/coracle".into(), PathBuf::from);
    path.canonicalize().map_err(|e| format!("{}: {e}; build it or name it in CORACLE_BIN", path.display()))
}

async fn measure(arguments: &Arguments, settings: &Settings) -> (Vec<Row>, Vec<String>) {
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for name in NAMES {
        let wanted = match arguments.names.as_slice() {
            // They are parts of another, or take minutes and gigabytes.
            [] => !["backlog", "affinity", "preemption", "large", "large-etcd"].contains(&name),
            names => names.iter().any(|wanted| wanted == name),
        };
        if !wanted {
            continue;
        }
        eprintln!("measuring: {name}");
        match run(name, settings).await {
            Ok(more) => rows.extend(more),
            Err(error) => failures.push(format!("{name}: {error}")),
        }
    }
    (rows, failures)
}

#[tokio::main]
async fn main() -> ExitCode {
    let (arguments, binary) = match (arguments(), binary()) {
        (Ok(arguments), Ok(binary)) => (arguments, binary),
        (Err(text), _) | (_, Err(text)) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    // Ring is the only provider here; a second installation is refused, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    println!("{}\n", machine::describe(&std::env::temp_dir()));
    let settings = Settings { binary, quick: arguments.quick, hour: arguments.hour };
    let (rows, failures) = measure(&arguments, &settings).await;
    print!("{}", table::render(&rows));
    for line in failures.iter().map(|text| format!("failed: {text}")).chain(table::excuses(&rows)) {
        println!("{line}");
    }
    let misses = table::misses(&rows, arguments.names.is_empty() && !arguments.quick);
    misses.iter().for_each(|text| println!("missed: {text}"));
    let good = failures.is_empty() && (misses.is_empty() || !arguments.check);
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
