//! How much room nodes have for volumes whose size holds, for the scheduler.
//!
//! Only of classes whose sizes hold everywhere (`sizeLimit: file` or `quota`): a volume of another class may be promised more
//! than there is, and commonly is. A node that has no quotas has no room for a class that asks for them. The scheduler looks
//! at it although there is no CSIDriver, which could not bear the provisioner's name.

use super::plan::Limit;
use super::{LocalPath, hostname, mail, plan};
use crate::capacities::{self, DRIVER_NAME, MANAGED_BY, Room};
use crate::facts::{HOSTNAME, LOCAL_PATH, SizeLimit};
use coracle_client::{Action, Context, Controller, Informer, ReconcileError, Reconciler};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::CSIStorageCapacity;
use kube::ResourceExt;
use nix::sys::statvfs::statvfs;
use std::io;
use std::path::Path;

/// A label bears no slash.
const LABEL: &str = "local-path.coracle.io";
/// Smaller changes are not told: each is a write that outlives the server.
const NEWS_BYTES: i64 = 64 << 20;

/// Bytes that a new file below `root` may take; the directory may not be there yet.
pub fn free(root: &Path) -> io::Result<i64> {
    let there = root.ancestors().find(|path| path.exists()).unwrap_or(root);
    let found = statvfs(there)?;
    let bytes = u128::from(found.blocks_available()) * u128::from(found.fragment_size());
    Ok(i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// Whether the difference to what was told matters: more than a twentieth.
pub fn is_news(told: Option<i64>, is: i64) -> bool {
    told.is_none_or(|told| {
        told.abs_diff(is) > told.unsigned_abs().div_ceil(20).max(NEWS_BYTES.unsigned_abs())
    })
}

struct Rooms {
    local: LocalPath,
    capacities: Informer<CSIStorageCapacity>,
}

/// Runs until `context.stop` is cancelled.
pub async fn run(context: &Context, local: LocalPath) {
    let (classes, nodes) = (local.classes.clone(), local.nodes.clone());
    let capacities = context.informers.of();
    let this = Rooms { local, capacities: capacities.clone() };
    Controller::new(this)
        .watch(&classes, |delta| {
            let mut either = delta.old.iter().chain(delta.new.iter());
            either.any(|class| class.provisioner == LOCAL_PATH).then_some("rooms")
        })
        .watch(&nodes, |delta| {
            let told = |node: Option<&Node>| {
                node.map(|node| (mail::room(node), mail::has_quotas(node), hostname(node)))
            };
            (told(delta.old.as_deref()) != told(delta.new.as_deref())).then_some("rooms")
        })
        .reads(&capacities)
        .run(context.stop.clone())
        .await;
}

impl Reconciler for Rooms {
    type Key = &'static str;

    fn name(&self) -> &'static str {
        "local-path-capacity"
    }

    async fn reconcile(&self, _: &&'static str) -> Result<Action, ReconcileError> {
        let classes = self.local.classes.iter().filter(|class| class.provisioner == LOCAL_PATH);
        let mut rooms = Vec::new();
        for class in classes {
            let Ok(Limit::By(limit)) = plan::limit(&class) else { continue };
            let told =
                self.local.nodes.iter().filter(|node| limit == SizeLimit::File || mail::has_quotas(node));
            rooms.extend(told.filter_map(|node| room(&class.name_any(), &node)));
        }
        let labels =
            [(DRIVER_NAME.to_owned(), LABEL.to_owned()), (MANAGED_BY.to_owned(), "coracle".to_owned())];
        capacities::publish(&self.local.client, &self.capacities, &labels.into(), &rooms).await?;
        Ok(Action::AwaitChange)
    }
}

fn room(class: &str, node: &Node) -> Option<Room> {
    let bytes = mail::room(node)?;
    let place = [(HOSTNAME.to_owned(), hostname(node))].into();
    Some(Room { class: class.to_owned(), place, bytes, largest: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_changes_of_the_room_are_no_news() {
        const GIB: i64 = 1 << 30;
        assert!(is_news(None, 0));
        assert!(!is_news(Some(100 * GIB), 96 * GIB) && is_news(Some(100 * GIB), 94 * GIB));
        assert!(is_news(Some(0), NEWS_BYTES + 1) && !is_news(Some(0), NEWS_BYTES));
        assert!(is_news(Some(i64::MAX), 0));
    }

    #[test]
    fn the_room_of_a_directory_that_is_not_made_yet_is_that_of_its_file_system() {
        let dir = tempfile::tempdir().unwrap();
        assert!(free(&dir.path().join("a/b")).unwrap() > 0);
    }
}
