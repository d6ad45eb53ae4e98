//! `load [--quick] [NAME...]`: attacks a server and prints what another client, its memory and its descriptors show.
//!
//! `CORACLE_BIN` names the binary; without it the newest build is taken. The exit code says whether every bound holds.

use coracle_tests::apart;
use coracle_tests::load::{Error, Figures, LARGE, Stage, connections, dns, frames, requests};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Of the other client's gets, in a release build with two processors of which the attack takes its part.
const P99_MS: f64 = 50.0;
/// What an attack may add to the server's memory.
const GROWS_MIB: usize = 300;

const NAMES: [&str; 16] = [
    "silent",
    "idle",
    "handshakes",
    "slow-heads",
    "slow-bodies",
    "resets",
    "pings",
    "settings",
    "window-updates",
    "continuations",
    "deaf",
    "untaken",
    "bombs",
    "storm",
    "watches",
    "dns",
];

struct Scale {
    connections: usize,
    time: Duration,
}

#[tokio::main]
async fn main() -> ExitCode {
    // Ring is the only provider here; a second installation is refused, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|a| a == "--quick");
    let names: Vec<&str> = NAMES.into_iter().filter(|n| arguments.iter().any(|a| a == n)).collect();
    let names = if names.is_empty() { NAMES.to_vec() } else { names };
    let scale = match quick {
        true => Scale { connections: 1_000, time: Duration::from_secs(3) },
        false => Scale { connections: 10_000, time: Duration::from_secs(10) },
    };
    match all(&names, &scale).await {
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

async fn all(names: &[&str], scale: &Scale) -> Result<Vec<String>, Error> {
    let stage = Stage::start(&[])?;
    let mut wrong = Vec::new();
    println!("{}", Figures::HEAD);
    for name in names.iter().filter(|name| **name != "dns") {
        let figures = one(&stage, name, scale).await?;
        println!("{figures}");
        wrong.extend(figures.judge(P99_MS, GROWS_MIB));
    }
    drop(stage);
    if names.contains(&"dns") {
        let (connections, questions) = (scale.connections.min(5_000), 200);
        let apart = tokio::task::spawn_blocking(move || {
            apart(&dns::NETWORK, || names_under_flood(connections, questions))
        });
        match apart.await? {
            Ok(mistakes) => wrong.extend(mistakes?),
            Err(why) => println!("dns was left out, because there is no network of its own: {why:?}"),
        }
    }
    Ok(wrong)
}

async fn one(stage: &Stage, name: &str, scale: &Scale) -> Result<Figures, Error> {
    let (stranger, user) = (stage.stranger(), &stage.attacker);
    let (count, time) = (scale.connections, scale.time);
    match name {
        "silent" => stage.under("silent connections", connections::silent(&stranger, count)).await,
        "idle" => stage.under("idle connections with TLS", connections::idle(&stranger, count)).await,
        "handshakes" => stage.under("TLS handshakes", connections::handshakes(&stranger, time)).await,
        "slow-heads" => {
            let within = Duration::from_secs(40);
            stage.under("slow heads", connections::slow_heads(&stranger, count / 10, within)).await
        }
        "slow-bodies" => {
            let count = count / 20;
            let attack = async {
                let mut seen = Vec::new();
                for level in ["metadata", "request", "requestresponse"] {
                    seen.push(format!("{level}: {}", connections::slow_bodies(user, level, count).await?.0));
                }
                Ok((seen.join("; "), ()))
            };
            stage.under("slow bodies", attack).await
        }
        "resets" => stage.under("HTTP/2 resets", frames::resets(&stranger, time)).await,
        "pings" => stage.under("HTTP/2 PING", frames::pings(&stranger, time)).await,
        "settings" => stage.under("HTTP/2 SETTINGS", frames::settings(&stranger, time)).await,
        "window-updates" => {
            stage.under("HTTP/2 WINDOW_UPDATE", frames::window_updates(&stranger, time)).await
        }
        "continuations" => stage.under("HTTP/2 CONTINUATION", frames::continuations(&stranger, time)).await,
        "deaf" => stage.under("readers that take nothing", frames::deaf(user, "/openapi/v2", 20, time)).await,
        "untaken" => {
            stage.under("large objects that nobody takes", frames::deaf(user, LARGE, 20, time)).await
        }
        "bombs" => {
            let (bombs, began) = (requests::bombs(), Instant::now());
            let attack = async {
                let (mut rounds, mut wrong) = (0, Vec::new());
                while rounds == 0 || began.elapsed() < time {
                    wrong.extend(requests::send(user, &bombs).await?.1);
                    rounds += 1;
                }
                let sent = rounds * bombs.len();
                Ok((format!("{sent} sent, {} not refused {}", wrong.len(), wrong.join("; ")), ()))
            };
            stage.under("bombs", attack).await
        }
        "storm" => stage.under("bombs, 8 at a time", requests::storm(user, 2, 8)).await,
        _ => stage.under("watches", frames::watches(user, "/api/v1/configmaps?watch=1", 20, time)).await,
    }
}

/// With a server of its own; what is judged of the names is what is judged of gets.
fn names_under_flood(connections: usize, questions: usize) -> Result<Vec<String>, Error> {
    let runtime = tokio::runtime::Runtime::new()?;
    let stage = dns::stage()?;
    let mut slowest = Duration::ZERO;
    let attack = async {
        let (seen, answered) = dns::attack(connections, questions).await?;
        slowest = answered.percentile(99).max(answered.tcp);
        Ok((seen, ()))
    };
    let figures = runtime.block_on(stage.under("DNS by UDP and TCP", attack))?;
    println!("{figures}");
    let mut wrong = figures.judge(P99_MS, GROWS_MIB);
    if slowest.as_secs_f64() * 1000.0 > P99_MS {
        wrong.push(format!("{}: {slowest:?} for the other pod's questions", figures.name));
    }
    Ok(wrong)
}
