//! `coracle ci -- CMD`: a throw-away cluster in memory, without root, around one command.

use crate::args::{CiArgs, ServerArgs};
use crate::config::Config;
use crate::server::{Node, role};
use coracle_client::FollowedObject;
use coracle_kubelet::simulate::SimulateConfig;
use k8s_openapi::api::core::v1::ServiceAccount;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How long the cluster may take to be whole; it takes a fraction of a second.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Exit codes of what is not the command's own end, as env(1), docker and shells have them: the cluster could not be
/// started, the command could not be run, there is no such command.
const COULD_NOT_START: u8 = 125;
const COULD_NOT_RUN: u8 = 126;
const NO_SUCH_COMMAND: u8 = 127;

/// A directory of our own, removed when the cluster goes.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let path = std::env::temp_dir().join(format!("coracle-ci-{}", uuid::Uuid::new_v4()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left behind at worst: a directory that only we can read.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub async fn command(args: CiArgs) -> ExitCode {
    match run(args).await {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("coracle ci: {}", failure.text);
            ExitCode::from(failure.code)
        }
    }
}

/// Why the command did not run, and the code that tells which kind of reason it is.
struct Failure {
    code: u8,
    text: String,
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self { code: COULD_NOT_START, text }
    }
}

impl Failure {
    fn of_spawn(program: &str, error: &std::io::Error) -> Self {
        let code = if error.kind() == std::io::ErrorKind::NotFound { NO_SUCH_COMMAND } else { COULD_NOT_RUN };
        Self { code, text: format!("{program}: {error}") }
    }
}

async fn run(args: CiArgs) -> Result<ExitCode, Failure> {
    let scratch = Scratch::new().map_err(|e| format!("temporary directory: {e}"))?;
    let config = config(&scratch.0, args.nodes)?;
    let stop = CancellationToken::new();
    let node = Node::start(&config, stop.clone()).await.map_err(|e| e.to_string())?;
    if let Some(wanted) = &args.kubeconfig {
        std::fs::copy(&config.kubeconfig, wanted).map_err(|e| format!("{}: {e}", wanted.display()))?;
    }
    Box::pin(wait_until_usable(&node, args.nodes)).await?;
    let status = around(&args.command, &config.kubeconfig).await;
    // Nothing of this cluster outlives it, so nothing is worth an orderly end.
    stop.cancel();
    drop(scratch);
    Ok(exit_code(status?))
}

fn config(scratch: &Path, nodes: u32) -> Result<Config, String> {
    let words = |list: &[&str]| Some(list.iter().map(|w| (*w).to_owned()).collect());
    Config::load(ServerArgs {
        data_dir: Some(scratch.to_owned()),
        bind_address: Some([127, 0, 0, 1].into()),
        https_port: Some(0),
        node_ip: Some(std::net::IpAddr::from([127, 0, 0, 1]).into()),
        node_name: Some("coracle-ci".to_owned()),
        disable: words(&["kubelet", "proxy", "dns", "manifests"]),
        storage_backend: Some("memory".to_owned()),
        simulate_nodes: Some(nodes),
        ..ServerArgs::default()
    })
}

/// Pods can be created once their namespace has its service account; that is when a cluster counts as whole. Its first
/// node stands for the server's own.
async fn wait_until_usable(node: &Node, nodes: u32) -> Result<(), String> {
    let client = coracle_client::transport::in_process::<_, axum::body::Body, _>(
        node.control_plane.api.service(),
        coracle_api::UserInfo::authenticated("system:coracle:ci", &["system:masters"]),
    );
    let among = "/api/v1/namespaces/default/serviceaccounts";
    let mut account = FollowedObject::<ServiceAccount>::new(client.clone(), among, "default");
    let exists = async { while account.next().await.is_none() {} };
    let labelled = async {
        match nodes {
            0 => Ok(()),
            _ => role::once(client, &SimulateConfig::default().node_name(0)).await,
        }
    };
    let waited = tokio::time::timeout(START_TIMEOUT, async { tokio::join!(exists, labelled) }).await;
    let ((), labelled) = waited.map_err(|_| "the cluster did not become usable".to_owned())?;
    labelled.map_err(|error| format!("the first node's role: {error}"))
}

/// Runs the command to its end, handing on the signals that ask us to end.
async fn around(command: &[String], kubeconfig: &Path) -> Result<ExitStatus, Failure> {
    let [program, arguments @ ..] = command else { return Err("no command".to_owned().into()) };
    let child = Command::new(program).args(arguments).env("KUBECONFIG", kubeconfig).spawn();
    let mut child = child.map_err(|error| Failure::of_spawn(program, &error))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| e.to_string())?;
    loop {
        tokio::select! {
            ended = child.wait() => return ended.map_err(|e| e.to_string().into()),
            _ = terminate.recv() => hand_on(&child, nix::sys::signal::Signal::SIGTERM),
            // A terminal sends it to the command too; one from elsewhere must reach it.
            _ = interrupt.recv() => hand_on(&child, nix::sys::signal::Signal::SIGINT),
        }
    }
}

fn hand_on(child: &Child, signal: nix::sys::signal::Signal) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).map(nix::unistd::Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended meanwhile.
        let _ = nix::sys::signal::kill(pid, signal);
    }
}

/// The command's own code; 128 and the signal's number where a signal ended it, as shells say it.
fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|s| 128 + s)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
