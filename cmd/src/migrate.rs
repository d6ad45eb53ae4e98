//! `coracle migrate`: a cluster's objects go from one store to another, with their uids, each compared afterwards.

use crate::args::{MigrateArgs, StoreKind};
use crate::door::{KnockError, Request, knock};
use crate::process::fail;
use crate::{lines, private};
use coracle_api::error::chain;
use coracle_apiserver::store::etcd::{EtcdOptions, moving};
use coracle_apiserver::store::sled::{self, Picture};
use coracle_apiserver::store::{KeyValue, Revision};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// In the data directory: says where the objects are now. The store beside it is of before.
const MOVED: &str = "moved-to-etcd";
/// No server hands out so many revisions between its last write that is moved and its end.
const AHEAD: u64 = 1_000_000;
/// In etcd, one for each server that lives, or that was killed (`server/living.rs`).
const SERVERS: &str = "leases.coordination.k8s.io/kube-system/coracle-server-";
/// A server that lives renews its Lease within this time: every five seconds, and two more.
const RENEWED_TIMEOUT: Duration = Duration::from_secs(7);

pub async fn command(args: MigrateArgs) -> ExitCode {
    let mut mistakes = Vec::new();
    let options = args.etcd.options(&mut mistakes);
    if args.from == args.to {
        mistakes.push("to: it is the store that --from names".to_owned());
    }
    if !mistakes.is_empty() {
        return fail(&mistakes.join("\n"));
    }
    let done = match args.to {
        StoreKind::Etcd => to_etcd(&args.data_dir, &options).await,
        StoreKind::Sled => to_sled(&args.data_dir, &options).await,
    };
    match done {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => fail(&why),
    }
}

/// A server on the embedded store does not begin with what is no longer the cluster.
pub fn refuse_moved(data_dir: &Path) -> Result<(), String> {
    let path = data_dir.join(MOVED);
    match std::fs::read_to_string(&path) {
        Ok(text) => Err(format!(
            "{}: {}; start with --storage-backend etcd, or remove that file to begin with the objects of before",
            path.display(),
            text.trim()
        )),
        Err(_) => Ok(()),
    }
}

async fn to_etcd(data_dir: &Path, options: &EtcdOptions) -> Result<String, String> {
    refuse_moved(data_dir)?;
    let (revision, items, runs) = taken(data_dir).await?;
    let moved = fill(data_dir, options, revision, &items).await;
    let moved = match moved {
        Ok(moved) => moved,
        Err(why) if runs => return Err(stay(data_dir, why)),
        Err(why) => return Err(why),
    };
    let mut text = format!(
        "{} objects are in etcd, each compared; revisions went on from {} to {}, and watches of before are told to list anew",
        moved.objects, revision.0, moved.revision.0
    );
    text += if runs {
        "\nthe server that runs here writes nothing any more: stop it, and start it with --storage-backend etcd and the same --etcd- flags"
    } else {
        "\nstart the server with --storage-backend etcd and the same --etcd- flags"
    };
    Ok(text)
}

async fn fill(
    data_dir: &Path,
    options: &EtcdOptions,
    revision: Revision,
    items: &[KeyValue],
) -> Result<moving::Moved, String> {
    let moved = moving::fill(options, items, revision, &|text| eprintln!("{text}")).await;
    let moved = moved.map_err(|error| chain(&error))?;
    let text = format!(
        "on {} its {} objects were moved to {} under {}\n",
        Timestamp::now().strftime("%FT%TZ"),
        moved.objects,
        options.servers.join(","),
        options.prefix
    );
    coracle_apiserver::pki::write_private(&data_dir.join(MOVED), text).map_err(|error| chain(&error))?;
    Ok(moved)
}

/// The state of the server that runs on the directory, which writes nothing from then on; else of the directory. And the newest
/// revision that a client may have seen.
async fn taken(data_dir: &Path) -> Result<(Revision, Vec<KeyValue>, bool), String> {
    let dir = data_dir.to_owned();
    let taken = tokio::task::spawn_blocking(move || match knock(&dir, Request::Move) {
        Ok(answer) => match lines::read(BufReader::new(answer)) {
            Ok((revision, items)) => Ok((revision, items, true)),
            Err(error) => Err(stay(&dir, chain(&error))),
        },
        Err(KnockError::NobodyThere(_)) => {
            let picture = Picture::of_stopped(dir.join("db")).map_err(|error| chain(&error))?;
            Ok((picture.handed_out(), picture.items().collect(), false))
        }
        Err(error) => Err(chain(&error)),
    });
    taken.await.map_err(|e| e.to_string())?
}

/// Nothing came of it: the server writes again.
fn stay(data_dir: &Path, why: String) -> String {
    let told = knock(data_dir, Request::Stay).map_err(|error| chain(&error)).and_then(|mut answer| {
        std::io::copy(&mut answer, &mut std::io::sink()).map(drop).map_err(|error| error.to_string())
    });
    match told {
        Ok(()) => why,
        Err(error) => format!("{why}\nthe server writes nothing until it is started again: {error}"),
    }
}

async fn to_sled(data_dir: &Path, options: &EtcdOptions) -> Result<String, String> {
    match knock(data_dir, Request::Stay) {
        Err(KnockError::NobodyThere(_)) => {}
        _ => return Err(format!("a server runs on {}: stop it first", data_dir.display())),
    }
    private::directory(data_dir)?;
    let (revision, items) = read(options).await?;
    if items.is_empty() {
        return Err(format!("there are no objects in etcd under {}", options.prefix));
    }
    nobody_writes(options, &items).await?;
    let db = data_dir.join("db");
    let new = data_dir.join("db.moving");
    remove(&new)?;
    let at = sled::make(items.iter().cloned(), revision, &new, AHEAD).map_err(|error| chain(&error))?;
    let made = Picture::of_stopped(&new).map_err(|error| chain(&error))?;
    let made: Vec<KeyValue> = made.items().collect();
    moving::compare(&items, &made).map_err(|error| chain(&error))?;
    // What was written meanwhile would be lost.
    let (_, again) = read(options).await?;
    let changed = |kv: &KeyValue| kv.modified > revision;
    if again.iter().any(changed) || again.len() != items.len() {
        remove(&new)?;
        return Err("somebody has written to etcd meanwhile: stop all servers, and begin again".to_owned());
    }
    let aside = put_aside(&db)?;
    std::fs::rename(&new, &db).map_err(|e| format!("{}: {e}", db.display()))?;
    let _ = std::fs::remove_file(data_dir.join(MOVED));
    let mut text = format!(
        "{}: {} objects as of revision {}, each compared; revisions go on at {}",
        db.display(),
        items.len(),
        revision.0,
        at.0
    );
    if let Some(aside) = aside {
        text += &format!("\nwhat was there before is in {aside}");
    }
    text += "\nstart the server without --storage-backend, and no other server on etcd any more";
    Ok(text)
}

async fn read(options: &EtcdOptions) -> Result<(Revision, Vec<KeyValue>), String> {
    moving::read(options).await.map_err(|error| chain(&error))
}

/// Of servers that were killed the Leases are left, and are not renewed.
async fn nobody_writes(options: &EtcdOptions, items: &[KeyValue]) -> Result<(), String> {
    let of_servers = |items: &[KeyValue]| -> BTreeMap<String, Revision> {
        let leases = items.iter().filter(|kv| kv.key.starts_with(SERVERS));
        leases.map(|kv| (kv.key.to_string(), kv.modified)).collect()
    };
    let before = of_servers(items);
    if before.is_empty() {
        return Ok(());
    }
    tokio::time::sleep(RENEWED_TIMEOUT).await;
    let after = of_servers(&read(options).await?.1);
    let alive: Vec<&str> = after
        .iter()
        .filter(|(key, modified)| before.get(*key) != Some(modified))
        .filter_map(|(key, _)| key.rsplit('/').next())
        .collect();
    if alive.is_empty() {
        Ok(())
    } else {
        Err(format!("servers write to etcd: stop {} first", alive.join(", ")))
    }
}

fn remove(dir: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// Where to.
fn put_aside(db: &Path) -> Result<Option<String>, String> {
    if !db.exists() {
        return Ok(None);
    }
    let aside = db.with_extension(format!("before-{}", Timestamp::now().strftime("%Y%m%dT%H%M%SZ")));
    std::fs::rename(db, &aside).map_err(|e| format!("{}: {e}", aside.display()))?;
    Ok(Some(aside.display().to_string()))
}
