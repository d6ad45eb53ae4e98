//! `coracle db`: the store of a server as a whole.

mod etcd;
mod transfer;

use crate::args::{DbArgs, DbCommand, RepairArgs};
use crate::process::fail;
use crate::progress::Steps;
use coracle_api::error::chain;
use coracle_apiserver::store::sled::{self, Examination};
use coracle_apiserver::store::{Revision, StoreError};
use std::path::Path;
use std::process::ExitCode;

/// Exit code 0: it is done, nothing is damaged, or it is repaired.
pub async fn command(args: DbArgs) -> ExitCode {
    let dir = args.data_dir.join("db");
    match args.command {
        DbCommand::Check => ended(check(&dir)),
        DbCommand::Repair(wanted) => ended(repair(&dir, &wanted)),
        DbCommand::Compact => ended(compact(&dir)),
        DbCommand::Export { file } => told(transfer::export(&args.data_dir, &file)),
        DbCommand::Import { file } => told(transfer::import(&args.data_dir, &file)),
    }
}

fn ended(done: Result<ExitCode, StoreError>) -> ExitCode {
    done.unwrap_or_else(|error| {
        eprintln!("coracle db: {}", chain(&error));
        ExitCode::FAILURE
    })
}

fn told(done: Result<String, String>) -> ExitCode {
    match done {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => fail(&why),
    }
}

fn check(dir: &Path) -> Result<ExitCode, StoreError> {
    must_exist(dir)?;
    let steps = Steps::of(dir);
    let found = sled::check_watched(dir, &|step| steps.take(step))?;
    drop(steps);
    print!("{}", report(&found));
    Ok(if found.is_damaged() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn report(found: &Examination) -> String {
    let mut text = String::new();
    for part in &found.parts {
        let (mark, state) = match &part.state {
            Ok(state) => ("ok     ", state),
            Err(why) => ("DAMAGED", why),
        };
        text += &format!("{mark}  {}: {state}\n", part.name);
    }
    text += &match &found.outcome {
        Ok(revision) if found.is_damaged() => format!(
            "A start comes to revision {} without a loss, and writes anew what is damaged.\n",
            revision.0
        ),
        Ok(revision) => format!("A start comes to revision {}.\n", revision.0),
        Err(why) => format!("A start is refused: {why}\n"),
    };
    text
}

fn repair(dir: &Path, wanted: &RepairArgs) -> Result<ExitCode, StoreError> {
    must_exist(dir)?;
    let done = match wanted.accept_loss_after {
        Some(after) => sled::repair(dir, Revision(after))?,
        None => sled::salvage(dir)?,
    };
    println!("{} objects as of revision {} are kept.", done.objects, done.revision.0);
    if done.lost.is_empty() {
        println!("Nothing had to be given up.");
    }
    done.lost.iter().for_each(|lost| println!("Lost: {lost}."));
    println!("What was there before is in {}; delete it when the server runs well.", done.aside.display());
    Ok(ExitCode::SUCCESS)
}

fn compact(dir: &Path) -> Result<ExitCode, StoreError> {
    must_exist(dir)?;
    let steps = Steps::of(dir);
    let done = sled::compact_watched(dir, &|step| steps.take(step))?;
    drop(steps);
    println!(
        "{} objects as of revision {}; {} bytes of disk instead of {}.",
        done.objects, done.revision.0, done.bytes_after, done.bytes_before
    );
    Ok(ExitCode::SUCCESS)
}

/// A slip in the path must not make an empty store there.
fn must_exist(dir: &Path) -> Result<(), StoreError> {
    std::fs::metadata(dir)
        .map(drop)
        .map_err(|source| StoreError::Io { path: dir.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_apiserver::store::sled::Part;

    #[test]
    fn what_is_damaged_stands_out() {
        let part = |name: &str, state: Result<&str, &str>| Part {
            name: name.to_owned(),
            state: state.map(str::to_owned).map_err(str::to_owned),
        };
        let found = Examination {
            parts: vec![part("sled", Ok("3 objects")), part("snapshot", Err("its checksum is wrong"))],
            outcome: Ok(Revision(7)),
        };
        assert_eq!(
            report(&found),
            "ok       sled: 3 objects\nDAMAGED  snapshot: its checksum is wrong\n\
             A start comes to revision 7 without a loss, and writes anew what is damaged.\n"
        );
    }
}
