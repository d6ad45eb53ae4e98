//! `soak [--minutes N] [--quick] [NAME...]`: lets storms pass over a server in turn, for as long as told, and prints what it
//! keeps of each a minute later.
//!
//! `CORACLE_BIN` names the binary; without it the newest build is taken. The exit code says whether the server gave
//! everything back.

use coracle_tests::load::Error;
use coracle_tests::soak::{Field, Round, storms};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const NAMES: [&str; 4] = ["pods", "namespaces", "definitions", "cut-off"];
/// Of memory, a minute after a storm.
const RSS_PERCENT: f64 = 20.0;
/// Tasks, descriptors, watches that come and go by themselves: heartbeats of the nodes, the looks of this program.
const SPARE: usize = 12;
/// After a storm, until it is looked what is left of it.
const AFTER: Duration = Duration::from_secs(60);

struct Scale {
    nodes: usize,
    pods: usize,
    namespaces: usize,
    definitions: usize,
    sessions: usize,
}

const WHOLE: Scale = Scale { nodes: 100, pods: 10_000, namespaces: 2_000, definitions: 500, sessions: 1_000 };
const QUICK: Scale = Scale { nodes: 20, pods: 1_000, namespaces: 200, definitions: 50, sessions: 200 };

#[tokio::main]
async fn main() -> ExitCode {
    // Ring is the only provider here; a second installation is refused, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let minutes = arguments.iter().position(|a| a == "--minutes").and_then(|at| arguments.get(at + 1));
    let minutes = minutes.map_or(Ok(0), |text| text.parse::<u64>());
    let Ok(minutes) = minutes else {
        eprintln!("--minutes takes a number");
        return ExitCode::from(2);
    };
    let scale = if arguments.iter().any(|a| a == "--quick") { QUICK } else { WHOLE };
    let names: Vec<&str> = NAMES.into_iter().filter(|n| arguments.iter().any(|a| a == n)).collect();
    let names = if names.is_empty() { NAMES.to_vec() } else { names };
    match all(&names, &scale, Duration::from_secs(minutes * 60)).await {
        Ok(wrong) if wrong.is_empty() => ExitCode::SUCCESS,
        Ok(wrong) => {
            wrong.iter().for_each(|text| println!("missed: {text}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Each storm once, and again until the time is over. The first of each fills what is filled once (schemas, pools of
/// threads, the store's history), so that only the later ones are judged, where there are any.
async fn all(names: &[&'static str], scale: &Scale, time: Duration) -> Result<Vec<String>, Error> {
    let field = Field::start(scale.nodes)?;
    let begun = Instant::now();
    let mut wrong = Vec::new();
    println!("{}", Round::HEAD);
    for turn in 0.. {
        for name in names {
            let round = one(&field, name, scale).await?;
            println!("{round}");
            if turn > 0 || time.is_zero() {
                wrong.extend(round.judge(RSS_PERCENT, SPARE));
            }
        }
        if begun.elapsed() >= time {
            break;
        }
    }
    Ok(wrong)
}

async fn one(field: &Field, name: &'static str, scale: &Scale) -> Result<Round, Error> {
    let (cluster, admin) = (&field.cluster, &field.admin);
    let whole = |_: &_, _: &_| false;
    match name {
        "pods" => field.under(name, storms::pods(cluster, admin, scale.pods), AFTER, whole).await,
        "namespaces" => {
            field.under(name, storms::namespaces(cluster, admin, scale.namespaces), AFTER, whole).await
        }
        "definitions" => {
            field.under(name, storms::definitions(cluster, admin, scale.definitions), AFTER, whole).await
        }
        _ => field.under(name, storms::cut_off(cluster, admin, scale.sessions), AFTER, whole).await,
    }
}
