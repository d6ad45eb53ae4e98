//! `load [--quick] [NAME...]`: attacks a server and prints what another client, its memory and its descriptors show.
//!
//! `CORACLE_BIN` names the binary; without it the newest build is taken. The exit code says whether every bound holds.

use coracle_tests::load::{Error, Figures, Stage, connections, dns, frames, requests};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// Of the other client's gets, in a release build with two processors of which the attack takes its part.
const P99_MS: f64 = 50.0;
/// What an attack may add to the server's memory.
const GROWS_MIB: usize = 300;

const NAMES: [&str; 15] = [
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
    let node = format!("127.77.{}.{}", std::process::id() / 256 % 256, std::process::id() % 254 + 1);
    let stage = Stage::start(&["--node-ip", &node, "--disable", "kubelet,proxy,network"])?;
    let server = SocketAddr::new(node.parse()?, 10_053);
    let mut wrong = Vec::new();
    println!("{}", Figures::HEAD);
    for name in names {
        if *name == "dns" {
            wrong.extend(names_under_flood(&stage, server, scale).await?);
            continue;
        }
        let figures = one(&stage, name, scale).await?;
        println!("{figures}");
        wrong.extend(figures.judge(P99_MS, GROWS_MIB));
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
        "bombs" => {
            let bombs = requests::bombs();
            let attack = async {
                let (seen, wrong) = requests::send(user, &bombs).await?;
                Ok((format!("{seen}, {} not refused {}", wrong.len(), wrong.join("; ")), ()))
            };
            stage.under("bombs", attack).await
        }
        "storm" => stage.under("bombs, 8 at a time", requests::storm(user, 2, 8)).await,
        _ => stage.under("watches", frames::watches(user, "/api/v1/configmaps?watch=1", 20, time)).await,
    }
}

/// The flood is one client's; another asks by UDP and by TCP meanwhile.
async fn names_under_flood(stage: &Stage, server: SocketAddr, scale: &Scale) -> Result<Vec<String>, Error> {
    let (flooder, other) = ("127.0.0.66", "127.0.0.67");
    let flood = tokio::spawn(dns::flood(server, flooder));
    let attack = async {
        let held = dns::hold(server, flooder, scale.connections.min(5_000)).await?;
        let times = dns::honest(server, other, 200).await?;
        let tcp = dns::by_tcp(server, other).await?;
        let (p50, p99) = (times[99].as_secs_f64() * 1000.0, times[197].as_secs_f64() * 1000.0);
        let seen =
            format!("by UDP p50 {p50:.1} ms, p99 {p99:.1} ms; by TCP {:.1} ms", tcp.as_secs_f64() * 1000.0);
        Ok((seen, held))
    };
    let figures = stage.under("DNS by UDP and TCP", attack).await;
    flood.abort();
    let figures = figures?;
    println!("{figures}");
    Ok(figures.judge(P99_MS, GROWS_MIB))
}
