//! `coracle backup` and `coracle restore`: the state of a server in one file, and a data directory of such a file.

mod archive;
mod automatic;
mod bucket;
mod chunks;
mod contents;
mod error;
mod file;
mod journal;
mod keeping;
mod key;
mod list;
mod read;
mod restore;
mod sigv4;

pub use automatic::{Told, run};
pub use contents::{Site, write};
pub use error::ArchiveError;
pub use journal::{Archive, Due, Tap};
pub use restore::refuse_unfinished;

use crate::args::{BackupAction, BackupArgs, RestoreArgs};
use crate::door::{KnockError, Request, knock};
use crate::process::fail;
use crate::progress::Progress;
use contents::Manifest;
use coracle_api::error::chain;
use coracle_apiserver::store::sled::Picture;
pub use file::{NewFile, explain};
use key::Key;
use std::path::Path;
use std::process::ExitCode;

pub async fn command(args: BackupArgs) -> ExitCode {
    told(match (args.action, args.file) {
        (Some(BackupAction::List(args)), _) => Box::pin(list::run(*args)).await,
        (Some(BackupAction::Verify { file, key_file }), _) => verify(&file, key_file.as_deref()),
        (None, Some(file)) => make(&args.data_dir, &file, args.key_file.as_deref()),
        (None, None) => Err("say which file the backup is to be".to_owned()),
    })
}

pub fn restore(args: &RestoreArgs) -> ExitCode {
    told(restore::run(args))
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

fn key(path: Option<&Path>) -> Result<Option<Key>, String> {
    path.map(Key::read).transpose()
}

fn verify(path: &Path, key_file: Option<&Path>) -> Result<String, String> {
    let (key, unusable) = (key(key_file)?, |error| format!("{}: {}", path.display(), chain(&error)));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let found = if journal::Piece::parse(&name).is_some() {
        let found =
            journal::open(path, key.as_ref()).and_then(|opened| opened.read(|_| Ok(()))).map_err(unusable)?;
        let journal::Summary { commits, after, upto, from, until, .. } = found;
        format!("{commits} commits after revision {after} up to {upto}, of {from} to {until}")
    } else {
        described(&read::examine(path, key.as_ref()).map_err(unusable)?.manifest)
    };
    Ok(format!("{}: {found}", path.display()))
}

fn described(manifest: &Manifest) -> String {
    format!("{} objects as of revision {}, of {}", manifest.objects, manifest.revision, manifest.created)
}

/// Of the server that runs on the directory, else of the directory.
fn make(data_dir: &Path, path: &Path, key_file: Option<&Path>) -> Result<String, String> {
    let key = key(key_file)?;
    let mut file = NewFile::create(path).map_err(|error| explain(path, &error))?;
    let mut out = Progress::new(format!("writing {}", path.display()), None).over(&mut file);
    let manifest = match knock(data_dir, Request::Backup) {
        Ok(answer) => read::copy(answer, &mut out, key.as_ref()).map_err(|error| match error {
            ArchiveError::Io(error) => explain(path, &error),
            other => format!("the server's answer: {}", chain(&other)),
        })?,
        Err(KnockError::NobodyThere(_)) => {
            let picture = Picture::of_stopped(data_dir.join("db")).map_err(|error| chain(&error))?;
            let site = Site { data_dir, config: None };
            write(&mut out, key.as_ref(), &picture, site).map_err(|error| explain(path, &error))?
        }
        Err(error) => return Err(chain(&error)),
    };
    drop(out);
    let bytes = file.finish().map_err(|error| explain(path, &error))?;
    Ok(format!("{}: {}, {bytes} bytes", path.display(), described(&manifest)))
}
