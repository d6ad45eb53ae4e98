//! The first start of a further server: it is given what all servers of the cluster share, by its token.
//!
//! As an agent, it learns the cluster's authority from `cluster-info`, which the token's secret has signed, and is told
//! anything else only over a connection that this authority vouches for.

use crate::agent::discovery;
use crate::config::Config;
use crate::handover::{self, Handover};
use crate::join::{Join, Pin};
use crate::transport;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;

/// Returns when the key folder is there: it was made by an earlier start, or is made now.
///
/// # Errors
/// In words for whoever started the server: what is missing or wrong, and what to do.
pub async fn ensure(config: &Config) -> Result<(), String> {
    let Some(join) = &config.join else { return Ok(()) };
    let pki = config.data_dir.join("pki");
    if pki.join("ca.key").exists() {
        return Ok(());
    }
    if std::fs::read_dir(&pki).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(format!(
            "{} is of an agent, or of something else: a server joins with a data directory of its own",
            pki.display()
        ));
    }
    let given = ask(join).await?;
    agrees("cluster-cidr", given.cluster_cidr.as_deref(), &config.cluster_cidr.to_string())?;
    agrees("service-cidr", given.service_cidr.as_deref(), &config.service_cidr.to_string())?;
    given.write(&pki)?;
    tracing::info!(server = %join.server, "authorities and keys were handed over");
    Ok(())
}

async fn ask(join: &Join) -> Result<Handover, String> {
    let server = &join.server;
    let token = join.token.as_ref().ok_or(
        "this server has not joined a cluster yet: --token is needed, see coracle token create --server",
    )?;
    let ca_pem = discovery::authority(server, &token.token, &join.pins).await?;
    let client = transport::by_token(server, &ca_pem, &token.token.whole())?;
    let secrets: Api<Secret> = Api::namespaced(client, "kube-system");
    let found = match secrets.get(&handover::name(&token.token.id)).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
            return Err(format!(
                "{}: the token \"{}\" is not one for servers: coracle token create --server makes one",
                server.to_string().trim_end_matches('/'),
                token.token.id
            ));
        }
        found => found.map_err(|e| transport::why(server, &e))?,
    };
    let sealed = found.data.unwrap_or_default().remove(handover::ENTRY).unwrap_or_default();
    let given = Handover::open(&sealed.0, token)?;
    if !Pin::all_of(&ca_pem)?.contains(&Pin::of(given.ca_pem())?) {
        return Err(
            "the cluster's authorities were replaced since the token was made: coracle token create --server makes another"
                .to_owned(),
        );
    }
    Ok(given)
}

fn agrees(flag: &str, theirs: Option<&str>, own: &str) -> Result<(), String> {
    match theirs {
        Some(theirs) if theirs != own => {
            Err(format!("{flag}: the cluster has {theirs}, this server was given {own}"))
        }
        _ => Ok(()),
    }
}
