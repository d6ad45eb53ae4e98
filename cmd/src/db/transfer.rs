//! `coracle db export` and `coracle db import`.

use super::etcd;
use crate::backup::{NewFile, explain};
use crate::door::{KnockError, Request, knock};
use crate::progress::{Progress, Steps};
use crate::{lines, private};
use coracle_api::error::chain;
use coracle_apiserver::store::sled::{self, Picture};
use coracle_apiserver::store::{KeyValue, Revision, StoreError};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

/// No server that has kept these objects before hands out revisions beyond this while they are moved; whoever watches it
/// is told to list anew.
const AHEAD: u64 = 1_000_000;

/// Of the server that runs on the directory, else of the directory.
pub fn export(data_dir: &Path, path: &Path) -> Result<String, String> {
    let failed = |error: io::Error| explain(path, &error);
    let mut file = NewFile::create(path).map_err(failed)?;
    let mut out = Progress::new(format!("writing {}", path.display()), None).over(&mut file);
    match knock(data_dir, Request::Export) {
        Ok(mut answer) => io::copy(&mut answer, &mut out).map(drop).map_err(failed)?,
        Err(KnockError::NobodyThere(_)) => {
            let picture = Picture::of_stopped(data_dir.join("db")).map_err(|error| chain(&error))?;
            lines::write(&mut out, &picture).map_err(failed)?;
        }
        Err(error) => return Err(chain(&error)),
    }
    drop(out);
    let bytes = file.finish().map_err(failed)?;
    let (revision, items) = read_lines(path)?;
    Ok(format!("{}: {} objects as of revision {}, {bytes} bytes", path.display(), items.len(), revision.0))
}

fn read_lines(path: &Path) -> Result<(Revision, Vec<KeyValue>), String> {
    let failed = |error: &dyn std::error::Error| format!("{}: {}", path.display(), chain(error));
    let file = File::open(path).map_err(|error| failed(&error))?;
    let size = file.metadata().ok().map(|meta| meta.len());
    let file = Progress::new(format!("reading {}", path.display()), size).over(file);
    lines::read(BufReader::new(file)).map_err(|error| failed(&error))
}

/// Into a data directory without a store.
pub fn import(data_dir: &Path, path: &Path) -> Result<String, String> {
    let (items, revision, left_out) = if etcd::is_snapshot(path) {
        let found = etcd::read(path).map_err(|error| format!("{}: {}", path.display(), chain(&error)))?;
        (found.items, found.revision, found.left_out)
    } else {
        let (revision, items) = read_lines(path)?;
        (items, revision, Vec::new())
    };
    private::directory(data_dir)?;
    let (count, dir) = (items.len(), data_dir.join("db"));
    let steps = Steps::of(&dir);
    let at = sled::make_watched(items, revision, &dir, AHEAD, &|step| steps.take(step));
    drop(steps);
    let at = at.map_err(|error| match &error {
        StoreError::Io { source, .. } if source.kind() == io::ErrorKind::DirectoryNotEmpty => {
            format!("{}: there is a store already; import makes a new one", dir.display())
        }
        _ => chain(&error),
    })?;
    let mut text = format!(
        "{}: {count} objects as of revision {}; revisions go on at {}",
        dir.display(),
        revision.0,
        at.0
    );
    if !left_out.is_empty() {
        text += &format!("\n{} keys that are the other server's own affair are left out", left_out.len());
    }
    if !data_dir.join("pki").exists() {
        text += "\nkeys and certificates are not in such a file: tokens of service accounts are good only with the pki/sa.key they were signed by";
    }
    Ok(text)
}
