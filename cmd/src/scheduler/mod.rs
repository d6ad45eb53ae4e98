//! `coracle scheduler`: a scheduler as its own process, beside or instead of the server's own.

mod port;

use crate::args::SchedulerArgs;
use crate::kubeconfig::client;
use crate::server::until_told_to_end;
use coracle_client::leader::{Candidate, Times};
use coracle_client::{Context, Informers};
use coracle_scheduler::plugins::Registry;
use coracle_scheduler::{Config, Options};
use port::Life;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Upstream's port of health and metrics.
const SECURE_PORT: u16 = 10_259;

/// Runs until SIGTERM or SIGINT (exit code 0), or until leadership is lost (1): whoever starts it again lets it queue
/// up anew, as upstream's does.
pub async fn command(args: SchedulerArgs) -> ExitCode {
    match run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            for line in why.lines() {
                eprintln!("coracle: {line}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Reads a configuration file; warnings go to the log.
fn configuration(path: Option<&Path>, registry: &Registry) -> Result<Config, String> {
    let Some(path) = path else { return Ok(Config::default()) };
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let parsed = Config::parse(&text, registry);
    let parsed = parsed.map_err(|mistakes| {
        let lines = mistakes.0.iter().map(|m| format!("{}: {m}", path.display()));
        lines.collect::<Vec<_>>().join("\n")
    })?;
    for warning in parsed.warnings {
        tracing::warn!(file = %path.display(), "{warning}");
    }
    Ok(parsed.config)
}

/// Longer than the server needs; one that is gone must not hold the process up.
const RELEASED_WITHIN: std::time::Duration = std::time::Duration::from_secs(2);

/// How often the kubeconfig is looked at. The administrator's holds a certificate for days, whose other half begins when
/// the server writes the next one.
const KUBECONFIG_LOOK: std::time::Duration = std::time::Duration::from_secs(60);

/// Runs, and anew with each new kubeconfig.
async fn run(args: &SchedulerArgs) -> Result<(), String> {
    let told = CancellationToken::new();
    let ended = told.clone();
    tokio::spawn(async move {
        if until_told_to_end().await.is_ok() {
            ended.cancel();
        }
    });
    let address = SocketAddr::new(args.bind_address, args.secure_port.unwrap_or(SECURE_PORT));
    let wanted = args.secure_port != Some(0);
    let listener = if wanted { port::bind(address, args.secure_port.is_none()).await? } else { None };
    loop {
        let stop = told.child_token();
        let watching = tokio::spawn(until_changed(args.kubeconfig.clone(), stop.clone()));
        let outcome = run_until(args, listener.clone(), stop).await;
        watching.abort();
        outcome?;
        if told.is_cancelled() {
            return Ok(());
        }
        tracing::info!(kubeconfig = %args.kubeconfig.display(), "another kubeconfig, beginning anew");
    }
}

/// Cancels `stop` once the file holds something else.
async fn until_changed(path: PathBuf, stop: CancellationToken) {
    let first = tokio::fs::read(&path).await.ok();
    loop {
        tokio::time::sleep(KUBECONFIG_LOOK).await;
        let now = tokio::fs::read(&path).await.ok();
        if now.is_some() && now != first {
            return stop.cancel();
        }
    }
}

async fn run_until(
    args: &SchedulerArgs,
    listener: Option<Arc<TcpListener>>,
    stop: CancellationToken,
) -> Result<(), String> {
    let registry = Registry::in_tree();
    let config = configuration(args.config.as_deref(), &registry)?;
    let client = client(&args.kubeconfig).await?;
    let (life, options) = (Life::default(), Options { config, registry, ..Options::default() });
    let options = Options { synced: life.synced.clone(), ..options };
    if let Some(listener) = listener {
        port::serve(listener, client.clone(), options.metrics.clone(), life.clone(), stop.clone())?;
    }
    let candidate = candidate(&options.config, client.clone());
    let Some(leading) = lead(candidate.as_ref(), &stop).await else { return Ok(()) };
    life.leading.store(true, Ordering::Relaxed);
    let names: Vec<&str> = options.config.profiles.iter().map(|p| p.scheduler_name.as_str()).collect();
    tracing::info!(profiles = names.join(","), "scheduling");
    let informers = Informers::new(client.clone(), stop.clone());
    let context = Context { client, informers, stop: leading };
    coracle_scheduler::run(context, options).await.map_err(|e| e.to_string())?;
    if !stop.is_cancelled() {
        return Err("leadership was lost".to_owned());
    }
    if let Some(candidate) = candidate {
        // Whoever comes next waits a little longer otherwise.
        let released = tokio::time::timeout(RELEASED_WITHIN, candidate.release()).await;
        if let Ok(Err(error)) = released {
            tracing::warn!(%error, "lease not released");
        }
    }
    Ok(())
}

/// `None` where the configuration wants no election.
fn candidate(config: &Config, client: kube::Client) -> Option<Candidate> {
    let election = &config.election;
    election.elect.then(|| Candidate {
        client,
        namespace: election.namespace.clone(),
        lease: election.lease.clone(),
        identity: identity(),
        times: Times {
            lease: election.lease_duration,
            renew: election.renew_deadline,
            retry: election.retry_period,
        },
    })
}

/// Waits until this process leads, at once without an election; `None` when it is told to end before.
async fn lead(candidate: Option<&Candidate>, stop: &CancellationToken) -> Option<CancellationToken> {
    let Some(candidate) = candidate else { return Some(stop.child_token()) };
    tracing::info!(lease = candidate.lease, "waiting to lead");
    candidate.clone().lead(stop.clone()).await
}

/// Unique among the candidates, and readable: the host, and a number of this process.
fn identity() -> String {
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    format!("{}_{}", host.unwrap_or_default(), uuid::Uuid::new_v4())
}

/// The server's page of metrics, for the scheduler's.
pub struct Samples<'t>(pub &'t mut coracle_apiserver::metrics::Text);

impl coracle_scheduler::metrics::Page for Samples<'_> {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        self.0.head(name, help, kind);
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
        self.0.sample(name, labels, value);
    }
}
