//! Having work done for a volume on the node that it lies on.

use super::job::{Job, perform};
use super::{LocalPath, holder, hostname, mail, plan};
use crate::expand::wants_to_grow;
use crate::{facts, quota};
use coracle_client::{Action, ObjectKey, ReconcileError};
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::Value;
use std::path::PathBuf;

/// A node that keeps volumes.
#[derive(Debug)]
pub struct Home {
    pub node: String,
    pub hostname: String,
    pub root: PathBuf,
    /// This process works on it.
    pub is_own: bool,
    /// Quotas hold its volumes to their sizes.
    pub has_quotas: bool,
}

impl Home {
    /// By what another node says of itself.
    pub fn told(node: &Node, root: PathBuf) -> Option<Self> {
        let (hostname, has_quotas) = (hostname(node), mail::has_quotas(node));
        root.is_absolute().then(|| Self { node: node.name_any(), hostname, root, is_own: false, has_quotas })
    }
}

pub(crate) enum Outcome {
    Done,
    /// The node was asked; its answer wakes the volume. `new`: just now.
    Waits {
        new: bool,
    },
    Failed {
        error: String,
        full: bool,
    },
}

impl LocalPath {
    pub(crate) fn home(&self, node: &str) -> Option<Home> {
        let is_own = node == self.config.node_name;
        let object = self.nodes.get("", node);
        let root = match &object {
            _ if is_own => self.config.root.clone(),
            Some(object) => mail::root(object)?,
            None => return None,
        };
        let has_quotas = match &object {
            _ if is_own => quota::can_hold(self.config.mounter.projects(), &root),
            object => object.as_ref().is_some_and(|object| mail::has_quotas(object)),
        };
        let hostname = object.map_or_else(|| node.to_owned(), |object| hostname(&object));
        Some(Home { node: node.to_owned(), hostname, root, is_own, has_quotas })
    }

    pub(crate) fn home_by_hostname(&self, wanted: &str) -> Option<Home> {
        let node = holder(self.nodes.iter(), wanted)?;
        self.home(&node.name_any())
    }

    /// Whether any node has the hostname.
    pub(crate) fn is_known(&self, wanted: &str) -> bool {
        self.nodes.iter().any(|node| hostname(&node) == wanted)
    }

    /// Does the work, or has it done, once.
    pub(crate) async fn work(&self, home: &Home, volume: &str, job: &Job) -> Result<Outcome, ReconcileError> {
        if home.is_own {
            let (root, job, host) = (home.root.clone(), job.clone(), self.config.mounter.clone());
            let done = tokio::task::spawn_blocking(move || perform(&root, &job, host.as_ref())).await;
            let done = done.map_err(|panic| ReconcileError::Other(panic.to_string()))?;
            return Ok(match done {
                Ok(()) => Outcome::Done,
                Err(error) => Outcome::Failed { error: error.to_string(), full: error.is_full() },
            });
        }
        let Some(node) = self.nodes.get("", &home.node) else { return Ok(Outcome::Waits { new: false }) };
        match mail::answer(&node, volume, job) {
            Some(answer) if answer.error.is_empty() => Ok(Outcome::Done),
            Some(answer) => {
                // So that it is asked again.
                self.close_mail(home, volume).await?;
                Ok(Outcome::Failed { error: answer.error, full: answer.full })
            }
            None if mail::is_asked(&node, volume, job) => Ok(Outcome::Waits { new: false }),
            None => {
                self.write_mail(&home.node, mail::asking(volume, job)).await?;
                Ok(Outcome::Waits { new: true })
            }
        }
    }

    /// Goes on with a volume that is there and stays: what its node has said is read, and taken away.
    pub(crate) async fn settle(&self, volume: &PersistentVolume) -> Result<Action, ReconcileError> {
        let Some(hostname) = plan::home(volume) else { return Ok(Action::AwaitChange) };
        if let Some(claim) = self.growing(volume) {
            self.grow(&claim).await?;
            return Ok(Action::AwaitChange);
        }
        let name = volume.metadata.name.clone().unwrap_or_default();
        let Some(home) = self.home_by_hostname(hostname) else { return Ok(Action::AwaitChange) };
        self.close_if_answered(&home, &name).await?;
        Ok(Action::AwaitChange)
    }

    pub(crate) async fn close_if_answered(&self, home: &Home, volume: &str) -> Result<(), ReconcileError> {
        let node = self.nodes.get("", &home.node).filter(|_| !home.is_own);
        let answered = node.is_some_and(|node| mail::answered(&node).any(|answered| answered == volume));
        if answered { self.close_mail(home, volume).await } else { Ok(()) }
    }

    /// The volume's claim, where it asks for more than it has.
    fn growing(&self, volume: &PersistentVolume) -> Option<ObjectKey> {
        let reference = facts::claim_ref(volume)?;
        let claim = self.claims.get(reference.namespace.as_deref()?, reference.name.as_deref()?)?;
        wants_to_grow(&claim).then(|| ObjectKey::of(claim.as_ref()))
    }

    /// Takes away what was written about a volume that nobody waits for any more, and what was made of it.
    pub(crate) async fn forget(&self, volume: &str) -> Result<Action, ReconcileError> {
        // The informers run apart: it may be there, and its data somebody's.
        if Api::<PersistentVolume>::all(self.client.clone()).get_opt(volume).await?.is_some() {
            return Ok(Action::AwaitChange);
        }
        // It is moved: for a moment it is between its old object and its new one.
        if self.claims.iter().any(|claim| facts::volume_name(&claim) == Some(volume)) {
            return Ok(Action::AwaitChange);
        }
        for node in self.nodes.iter() {
            let Some(home) = self.home(&node.name_any()) else { continue };
            let Some(directory) = mail::directory(&node, volume) else {
                // It was answered twice: a node may look at what is old.
                if mail::answered(&node).any(|answered| answered == volume) {
                    self.close_mail(&home, volume).await?;
                }
                continue;
            };
            match self.work(&home, volume, &Job::Remove { directory }).await? {
                Outcome::Waits { .. } => {}
                Outcome::Failed { error, .. } => return Err(ReconcileError::Other(error)),
                Outcome::Done => self.close_mail(&home, volume).await?,
            }
        }
        Ok(Action::AwaitChange)
    }

    pub(crate) async fn close_mail(&self, home: &Home, volume: &str) -> Result<(), ReconcileError> {
        if home.is_own {
            return Ok(());
        }
        self.write_mail(&home.node, mail::closing(volume)).await
    }

    async fn write_mail(&self, node: &str, patch: Value) -> Result<(), ReconcileError> {
        let api: Api<Node> = Api::all(self.client.clone());
        match api.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            written => Ok(written.map(drop)?),
        }
    }
}
