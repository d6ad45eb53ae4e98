//! Secrets with encryption at rest and without: created and read by 16 clients over TLS, on a server of its own for each
//! provider, all in one run. A KMS is not among them: its plugin would be measured.

use crate::http::Call;
use crate::load::{Limit, closed_loop};
use crate::server::{ROOTLESS, Server};
use crate::table::{Row, figure};
use crate::{Error, Settings};

const CLIENTS: usize = 16;
/// The second round takes the other order, so that a machine that grows slower favours nobody.
const ROUNDS: usize = 2;
const PROVIDERS: [&str; 4] = ["identity", "secretbox", "aesgcm", "aescbc"];

fn secret(name: &str) -> Call {
    let body = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "data": {"payload": "MDEyMzQ1Njc4OWFi".repeat(54)},
    });
    Call::post("/api/v1/namespaces/default/secrets".to_owned(), body.to_string())
}

fn configuration(provider: &str) -> serde_json::Value {
    let key = serde_json::json!({"keys": [{"name": "k", "secret": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}]});
    let settings = if provider == "identity" { serde_json::json!({}) } else { key };
    serde_json::json!({
        "kind": "EncryptionConfiguration",
        "apiVersion": "apiserver.config.k8s.io/v1",
        "resources": [{"resources": ["secrets"], "providers": [{(provider): settings}]}],
    })
}

/// Creations and reads a second, and how many were done.
async fn once(settings: &Settings, provider: &str) -> Result<(f64, f64, usize), Error> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("encryption.yaml");
    std::fs::write(&path, configuration(provider).to_string())?;
    let flag = format!("--encryption-provider-config={}", path.display());
    let server = Server::start(&settings.binary, &[ROOTLESS[0], ROOTLESS[1], &flag]).await?;
    let limit = || Limit::time(settings.time(4));
    let made = closed_loop(&server.target, CLIENTS, limit(), |n| secret(&format!("s-{n}"))).await?;
    let count = u64::try_from(made.latencies.len())?.max(1);
    // Those that were asked for last may not be there.
    let there = count.saturating_sub(u64::try_from(CLIENTS)?).max(1);
    let get = move |n| Call::get(format!("/api/v1/namespaces/default/secrets/s-{}", n % there));
    let read = closed_loop(&server.target, CLIENTS, limit(), get).await?;
    Ok((made.per_second(), read.per_second(), made.latencies.len()))
}

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let mut totals = [(0.0, 0.0, 0); PROVIDERS.len()];
    for round in 0..ROUNDS {
        for step in 0..PROVIDERS.len() {
            let at = if round % 2 == 0 { step } else { PROVIDERS.len() - 1 - step };
            let (made, read, count) = once(settings, PROVIDERS[at]).await?;
            let (all_made, all_read, all) = &mut totals[at];
            *all_made += made;
            *all_read += read;
            *all += count;
        }
    }
    let rounds = f64::from(u32::try_from(ROUNDS)?);
    let (plain_made, plain_read, _) = totals[0];
    let mut rows = Vec::new();
    for (provider, (made, read, n)) in PROVIDERS.iter().zip(totals) {
        rows.push(figure(format!("create a Secret, {provider}"), made / rounds, "/s", n));
        rows.push(figure(format!("get a Secret, {provider}"), read / rounds, "/s", n));
        if *provider != "identity" {
            rows.push(figure(format!("create a Secret, {provider} to identity"), made / plain_made, "", n));
            rows.push(figure(format!("get a Secret, {provider} to identity"), read / plain_read, "", n));
        }
    }
    Ok(rows)
}
