//! Load by somebody without rights: the other client keeps its answers, the server its memory and descriptors.
//!
//! Smaller than what `tests/load` does, with bounds that hold on a busy machine and in a build without optimisation.

use coracle_tests::load::{Error, LARGE, Stage, connections, dns, frames, requests};
use coracle_tests::{NoNetwork, apart, skipped};
use std::time::Duration;

/// Of the other client's gets: without optimisation a handshake alone takes some milliseconds, a thousand streams some
/// seconds, and other tests run. Who is kept out waits for ever, or fails.
const P99_MS: f64 = 10_000.0;
/// What an attack may add to the server's memory.
const GROWS_MIB: usize = 250;
const TIME: Duration = Duration::from_secs(2);

#[test]
fn strangers_and_users_without_rights_keep_nobody_from_the_server() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if let Err(error) = runtime.block_on(attacks()) {
        panic!("{error}");
    }
}

async fn attacks() -> Result<(), Error> {
    let stage = Stage::start(&[])?;
    let (stranger, user) = (stage.stranger(), stage.attacker.clone());
    // It takes 32 s, so that the others go on beside it.
    let slow = stranger.clone();
    let heads = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(connections::slow_heads(&slow, 50, Duration::from_secs(45)))
    });
    let mut wrong = Vec::new();
    let mut judge = |figures: coracle_tests::load::Figures| {
        println!("{figures}");
        wrong.extend(figures.judge(P99_MS, GROWS_MIB));
        figures
    };
    let silent = judge(stage.under("silent connections", connections::silent(&stranger, 3_000)).await?);
    // Of 3,000 strangers as many stay as there are places for.
    assert!(silent.descriptors.1 < silent.descriptors.0 + 2_200, "{silent}");
    judge(stage.under("TLS handshakes", connections::handshakes(&stranger, TIME)).await?);
    for level in ["metadata", "request", "requestresponse"] {
        let mut answered = Vec::new();
        let attack = async {
            let (seen, answers) = connections::slow_bodies(&user, level, 100).await?;
            answered = answers;
            Ok((seen, ()))
        };
        judge(stage.under("slow bodies", attack).await?);
        // A connection that is closed with bytes of its body unread may end before its answer is seen (0).
        let refused = answered
            .iter()
            .filter(|(status, _)| matches!(status, 0 | 429 | 504))
            .map(|(_, n)| n)
            .sum::<usize>();
        assert_eq!(refused, 100, "at level {level}: {answered:?}");
        assert!(answered.iter().any(|(status, _)| *status == 504), "at level {level}: {answered:?}");
    }
    judge(stage.under("HTTP/2 resets", Box::pin(ends(frames::resets(&stranger, TIME * 3)))).await?);
    judge(stage.under("HTTP/2 PING", Box::pin(ends(frames::pings(&stranger, TIME * 5)))).await?);
    judge(stage.under("HTTP/2 SETTINGS", Box::pin(ends(frames::settings(&stranger, TIME * 5)))).await?);
    judge(
        stage
            .under("HTTP/2 CONTINUATION", Box::pin(ends(frames::continuations(&stranger, TIME * 3))))
            .await?,
    );
    judge(stage.under("readers that take nothing", frames::deaf(&user, "/openapi/v2", 4, TIME)).await?);
    judge(stage.under("large objects that nobody takes", frames::deaf(&user, LARGE, 4, TIME)).await?);
    judge(stage.under("watches", frames::watches(&user, "/api/v1/configmaps?watch=1", 4, TIME)).await?);
    let bombs = requests::bombs();
    let mut kept = Vec::new();
    let attack = async {
        let (seen, wrong) = requests::send(&user, &bombs).await?;
        kept = wrong;
        Ok((seen, ()))
    };
    judge(stage.under("bombs", attack).await?);
    assert!(kept.is_empty(), "not refused:\n{}", kept.join("\n"));
    let (seen, ended) = heads.join().map_err(|_| "a panic")??;
    assert_eq!(ended, 50, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The server is to end the connection.
async fn ends(attack: impl Future<Output = Result<(String, bool), Error>>) -> Result<(String, bool), Error> {
    let (seen, ended) = Box::pin(attack).await?;
    if ended { Ok((seen, ended)) } else { Err(format!("the connection was not ended: {seen}").into()) }
}

/// Half the names are answered within this under a flood: so they need not be asked for again. On a busy machine some datagrams
/// are lost whatever the server does.
const NAMED_WITHIN: Duration = Duration::from_secs(1);

#[test]
fn a_flood_of_one_pod_keeps_no_name_from_another() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    match apart(&dns::NETWORK, flood) {
        Ok(outcome) => outcome.unwrap_or_else(|error| panic!("{error}")),
        Err(NoNetwork::NotAllowed) => skipped("needs root, to have a network of its own"),
        Err(NoNetwork::Failed(why)) => panic!("{why}"),
    }
}

fn flood() -> Result<(), Error> {
    let runtime = tokio::runtime::Runtime::new()?;
    let stage = dns::stage()?;
    let mut seen = None;
    let attack = async {
        let (text, answered) = dns::attack(1_000, 100).await?;
        seen = Some(answered);
        Ok((text, ()))
    };
    let figures = runtime.block_on(stage.under("DNS by UDP and TCP", attack))?;
    println!("{figures}");
    let seen = seen.ok_or("nothing was asked")?;
    assert!(seen.percentile(50) < NAMED_WITHIN && seen.tcp < NAMED_WITHIN * 5, "{figures}");
    // 512 connections have places, and 128 questions of one client wait for resolvers outside.
    assert!(figures.descriptors.1 < figures.descriptors.0 + 700, "{figures}");
    let wrong = figures.judge(P99_MS, GROWS_MIB);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
