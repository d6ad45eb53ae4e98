//! The `coracle` binary: reads the command line and hands over.

mod access;
mod address;
mod agent;
mod args;
mod audit;
mod authentication;
mod authorities;
mod authorization;
mod backup;
mod book;
mod cert;
mod certificates;
mod check;
mod ci;
mod cidrs;
mod cluster;
mod code;
mod config;
mod db;
mod door;
mod edge;
mod encryption;
mod etcd;
mod eviction;
mod flags;
mod handover;
mod join;
mod kubeconfig;
mod kubelet;
mod lifecycle;
mod lines;
mod log;
mod manual;
mod migrate;
mod node;
mod parent;
mod parts;
mod posts;
mod private;
mod privileges;
mod process;
mod progress;
mod reset;
mod scheduled;
mod server;
mod servers;
mod settings;
mod shown;
mod status;
mod supervise;
mod table;
mod time;
mod token;
mod transport;
mod ui;
mod volume;
mod why;

use args::{Cli, Command};
use clap::Parser;
use rustix::thread::CapabilitySet;
use std::process::ExitCode;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// glibc's keeps what a burst needed: after 10,000 objects were written twice it holds three times as much as this one.
/// `.cargo/config.toml` has its settings.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Room for the deepest path, a write through webhooks, policies and conversion, in a build without optimisation too.
/// Only what is touched costs memory.
const STACK: usize = 8 << 20;

/// Levels without RUST_LOG: libraries speak up only when something is wrong.
const DEFAULT_LOG: &str = "warn,coracle=info";

/// Levels of `-v`, numbered as upstream does it.
fn levels(v: Option<u8>) -> &'static str {
    match v.unwrap_or(2) {
        0..=2 => DEFAULT_LOG,
        3 => "warn,coracle=info,coracle_apiserver::requests=debug",
        4 | 5 => "warn,coracle=debug",
        _ => "debug",
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    coracle_listen::raise_descriptors();
    parent::bind_to_parent();
    match cli.command {
        Command::Server(args) => {
            let log = levels(args.v);
            let configured = server::configure(*args);
            let kept = |config: &_| with_only(privileges::of_server(config));
            match configured.and_then(|config| kept(&config).map(|()| config)) {
                Ok(config) => in_runtime(log, server::command(config)),
                Err(mistakes) => process::fail(&mistakes),
            }
        }
        // Whatever fails is told by whoever asked.
        Command::Agent(args) => match with_only(privileges::of_node()) {
            Ok(()) => in_runtime(&format!("{},kube_client=off", levels(args.v)), agent::command(*args)),
            Err(why) => process::fail(&why),
        },
        Command::Supervise(args) => parent::command(&args),
        Command::Token(args) => in_runtime("error,kube_client=off", token::command(args)),
        Command::Cert(args) => in_runtime("error,kube_client=off", cert::command(args)),
        Command::Ci(args) => in_runtime("error", ci::command(args)),
        Command::Check(args) => check::run(&args),
        Command::Status(args) => in_runtime("error,kube_client=off", status::command(args)),
        Command::Db(args) => in_runtime("error", db::command(args)),
        Command::Backup(args) => in_runtime("error", backup::command(args)),
        Command::Restore(args) => backup::restore(&args),
        Command::Migrate(args) => in_runtime("error", migrate::command(*args)),
        Command::Reset(args) => in_runtime("warn", reset::command(args)),
        Command::Scheduler(args) => part(CapabilitySet::empty(), None, parts::scheduler::command(args)),
        Command::Controllers(args) => {
            part(CapabilitySet::empty(), args.v, parts::controllers::command(*args))
        }
        Command::Kubelet(args) => part(privileges::of_node(), args.v, parts::kubelet::command(*args)),
        Command::Proxy(args) => part(privileges::of_node(), args.v, parts::proxy::command(args)),
        Command::Kubeconfig(args) => in_runtime("error,kube_client=off", cert::kubeconfig(args)),
        Command::Why(args) => in_runtime("error", why::command(args)),
        Command::Volume(args) => in_runtime("error,kube_client=off", volume::command(args)),
        Command::Secrets(args) => encryption::command(&args),
        Command::Snapshots => snapshots(),
        Command::Completion(args) => manual::completion(&args),
        Command::Help(args) => book::command(&args),
        Command::Manual(args) => manual::command(&args),
    }
}

/// A part of the cluster as its own process.
fn part(kept: CapabilitySet, v: Option<u8>, command: impl Future<Output = ExitCode>) -> ExitCode {
    match with_only(kept) {
        // Whatever fails is told by whoever asked.
        Ok(()) => in_runtime(&format!("{},kube_client=off", levels(v)), command),
        Err(why) => process::fail(&why),
    }
}

fn with_only(kept: CapabilitySet) -> Result<(), String> {
    privileges::keep_only(kept).map_err(|e| coracle_api::error::chain(&e))
}

fn in_runtime(log: &str, command: impl Future<Output = ExitCode>) -> ExitCode {
    let log = log::begin(filter(log));
    // Ring is the only provider in this binary; a second installation is refused, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    match runtime.enable_all().thread_stack_size(STACK).build() {
        Ok(runtime) => {
            runtime.spawn(log.clone().tell_counts());
            let code = runtime.block_on(command);
            log.end();
            // Whatever still runs has been told to end, and must not keep the process.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            eprintln!("coracle: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What `RUST_LOG` says, else `log`: `LEVEL` and `TARGET=LEVEL`, with commas between.
///
/// A target stands for all that begin so: `coracle` for every crate of this workspace.
fn filter(log: &str) -> Targets {
    let asked = std::env::var_os("RUST_LOG").map(|asked| asked.to_string_lossy().into_owned());
    asked_filter(asked.as_deref())
        .unwrap_or_else(|mistake| {
            eprintln!("coracle: {mistake}; {log} is used instead");
            None
        })
        .unwrap_or_else(|| log.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::WARN)))
}

/// `None` where nothing is asked for.
fn asked_filter(asked: Option<&str>) -> Result<Option<Targets>, String> {
    let Some(asked) = asked.filter(|asked| !asked.is_empty()) else { return Ok(None) };
    asked.parse().map(Some).map_err(|error| format!("RUST_LOG={asked:?} names no levels: {error}"))
}

/// A manifest, on standard output. Somebody may read only its beginning.
fn snapshots() -> ExitCode {
    use std::io::Write;
    let written = std::io::stdout().write_all(coracle_storage::SNAPSHOT_DEFINITIONS.as_bytes());
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn levels_that_make_no_sense_are_told() {
        assert_eq!((asked_filter(None), asked_filter(Some(""))), (Ok(None), Ok(None)));
        let asked = asked_filter(Some("warn,coracle=debug")).unwrap().unwrap();
        assert!(asked.would_enable("coracle_apiserver", &Level::DEBUG));
        let mistake = asked_filter(Some("coracle=loud")).unwrap_err();
        assert!(mistake.starts_with("RUST_LOG=\"coracle=loud\" names no levels: "), "{mistake}");
    }

    #[test]
    fn a_level_holds_for_every_crate_of_ours() {
        let enabled = |v: u8, target: &str, level: Level| {
            levels(Some(v)).parse::<Targets>().unwrap().would_enable(target, &level)
        };
        for target in ["coracle", "coracle::server", "coracle_apiserver::aggregation", "coracle_kubelet"] {
            assert!(enabled(2, target, Level::INFO), "{target}");
            assert!(!enabled(2, target, Level::DEBUG), "{target}");
            assert!(enabled(4, target, Level::DEBUG), "{target}");
        }
        assert!(enabled(3, "coracle_apiserver::requests", Level::DEBUG));
        assert!(!enabled(3, "coracle_apiserver::cache", Level::DEBUG));
        assert!(!enabled(2, "hyper", Level::INFO));
        assert!(enabled(6, "hyper", Level::DEBUG));
    }
}
