//! `coracle status`: how the cluster is, for people, and for scripts by the exit code and `-o json`.
//!
//! `gather` asks the API, `report` judges what it said, `text` prints it.

mod gather;
mod page;
mod report;
mod text;

use crate::args::StatusArgs;
use gather::Gathered;
use report::Report;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// How often a cluster that is not up yet is asked again: there is nothing to watch before it answers.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Between two looks of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);
/// Nobody answers, or not to us.
const NO_ANSWER: u8 = 2;
/// Takes the cursor to the upper left corner and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Exit code 0: all is well; 1: something is wrong; 2: nobody answers. With `--wait` it is the nodes that count.
pub async fn command(args: StatusArgs) -> ExitCode {
    if args.watch {
        return watch(&args).await;
    }
    let until = Instant::now() + Duration::from_secs(args.wait.unwrap_or(0));
    loop {
        let found = gather::gather(&args.kubeconfig).await;
        let ready = matches!(&found, Ok(found) if Report::of(found).nodes_are_ready());
        if args.wait.is_none() || ready || Instant::now() >= until {
            return ended(&args, found);
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

fn ended(args: &StatusArgs, found: Result<Gathered, String>) -> ExitCode {
    let report = match found {
        Ok(found) => Report::of(&found),
        Err(why) => {
            eprintln!("coracle: {why}");
            return ExitCode::from(NO_ANSWER);
        }
    };
    print!("{}", shown(args, &report));
    let well = if args.wait.is_some() { report.nodes_are_ready() } else { report.is_well() };
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn shown(args: &StatusArgs, report: &Report) -> String {
    if args.output.is_some() {
        // A report holds nothing that has no form in JSON.
        return format!("{}\n", serde_json::to_string_pretty(report).unwrap_or_default());
    }
    text::text(report)
}

/// Until somebody ends it.
async fn watch(args: &StatusArgs) -> ExitCode {
    let mut last = String::new();
    loop {
        let now = match gather::gather(&args.kubeconfig).await {
            Ok(found) => shown(args, &Report::of(&found)),
            Err(why) => format!("{why}\n"),
        };
        if now != last {
            let clear = if args.output.is_some() { "" } else { CLEAR };
            print!("{clear}{now}");
            last = now;
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}
