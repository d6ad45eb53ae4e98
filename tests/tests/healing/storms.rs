//! What a storm took is given back when it is over. Smaller than what `tests/soak` does, and judged by what is counted,
//! not by the memory of a build without optimisation.

use coracle_tests::load::Error;
use coracle_tests::soak::{Field, Figures, storms};
use std::time::Duration;

/// Until everything is given back, in a build without optimisation on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Heartbeats of nodes and the looks of this test are tasks and descriptors too.
const SPARE: usize = 12;

#[test]
fn what_a_storm_took_is_given_back() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if let Err(error) = runtime.block_on(all()) {
        panic!("{error}");
    }
}

/// Nothing is left of pods and definitions, neither in the cache nor in what is told of it.
fn is_settled(before: &Figures, now: &Figures) -> bool {
    let near = |before: usize, now: usize| now <= before + SPARE;
    near(before.tasks, now.tasks)
        && near(before.descriptors, now.descriptors)
        && near(before.watches, now.watches)
        && now.inotify <= before.inotify
        && now.sample("coracle_cache_bytes", r#""pods""#).is_none_or(|bytes| bytes == 0)
        && !now.page.contains(storms::GROUP)
}

async fn all() -> Result<(), Error> {
    let field = Field::start(4)?;
    let (cluster, admin) = (&field.cluster, &field.admin);
    let mut rounds = vec![
        field.under("definitions", storms::definitions(cluster, admin, 20), PATIENCE, is_settled).await?,
        field.under("pods", storms::pods(cluster, admin, 300), PATIENCE, is_settled).await?,
        field.under("cut-off", storms::cut_off(cluster, admin, 100), PATIENCE, is_settled).await?,
    ];
    rounds
        .push(field.under("namespaces", storms::namespaces(cluster, admin, 20), PATIENCE, is_settled).await?);
    for round in &rounds {
        println!("{round}");
        assert!(is_settled(&round.before, &round.after), "{round}\n{}", round.after.page);
        assert!(round.peak.tasks >= round.before.tasks && round.after.history_mib <= 16.0, "{round}");
    }
    assert!(rounds[0].after.page.contains("customresourcedefinitions"), "what is served is told of");
    Ok(())
}
