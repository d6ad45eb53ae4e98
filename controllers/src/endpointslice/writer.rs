//! Carries out a plan for slices; shared by the controller for Services and the one that mirrors Endpoints.

use super::counted::{Counted, Look};
use super::plan::{self, Frame, Group};
use crate::common::pending::Pending;
use crate::common::{code_of, message_of, namespace_terminating};
use coracle_api::well_known;
use coracle_client::informer::{Kind, api_for};
use coracle_client::{Delta, Informer, ObjectKey, ReconcileError, Recorder};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use std::sync::Arc;

pub const SERVICE_NAME: &str = well_known::SERVICE_NAME;
pub const MANAGED_BY: &str = well_known::ENDPOINT_SLICE_MANAGED_BY;

pub struct Writer {
    pub client: kube::Client,
    pub slices: Informer<EndpointSlice>,
    pub pending: Pending,
    /// The value of the managed-by label.
    pub manager: &'static str,
    pub counted: Counted,
}

/// The Service of a slice that `manager` keeps.
pub fn service_of(delta: &Delta<EndpointSlice>, manager: &str) -> Option<ObjectKey> {
    let slice = delta.object().filter(|s| is_of(s, manager))?;
    let name = slice.labels().get(SERVICE_NAME)?;
    Some(ObjectKey::new(slice.namespace().unwrap_or_default(), name))
}

fn is_of(slice: &EndpointSlice, manager: &str) -> bool {
    slice.labels().get(MANAGED_BY).is_some_and(|by| by == manager)
}

/// Says on `of`, a Service or Endpoints, why its slices could not be written. A conflict is nobody's business: the next
/// look settles it.
pub fn report<K: Kind>(
    recorder: &Recorder,
    of: &K,
    kind: &str,
    written: Result<usize, ReconcileError>,
) -> Result<usize, ReconcileError> {
    if let Err(ReconcileError::Api(error)) = &written
        && code_of(error) != 409
    {
        let why = message_of(error);
        let message = format!("Error updating Endpoint Slices for {kind} {}: {why}", ObjectKey::of(of));
        recorder.warning(of, "FailedToUpdateEndpointSlices", message);
    }
    written
}

impl Writer {
    /// The slices of a Service that this manager keeps.
    pub fn existing(&self, key: &ObjectKey) -> Vec<Arc<EndpointSlice>> {
        let mut slices = self.slices.with_label(&key.namespace, SERVICE_NAME, &key.name);
        slices.retain(|s| is_of(s, self.manager));
        slices
    }

    /// Makes the Service's slices what the frames and their groups say; those of no frame go. `stamp` has the last word on
    /// a slice that is written. How many changed.
    pub async fn write(
        &self,
        key: &ObjectKey,
        wanted: Vec<(Frame, Vec<Group>)>,
        stamp: &(dyn Fn(&mut EndpointSlice) + Sync),
    ) -> Result<usize, ReconcileError> {
        let (mut left, mut changed) = (self.existing(key), 0);
        let (none, mut look) = (wanted.is_empty(), Look::default());
        for (frame, groups) in wanted {
            let (mine, others) = left.into_iter().partition(|s| s.address_type == frame.address_type);
            left = others;
            let mine: Vec<Arc<EndpointSlice>> = mine;
            look.want(&groups, &mine);
            let mut changes = plan::plan(&frame, groups, &mine);
            look.plan(mine.len(), &changes);
            changes.create.iter_mut().chain(&mut changes.update).for_each(stamp);
            changed += changes.create.len() + changes.update.len() + changes.delete.len();
            self.apply(key, changes).await?;
        }
        changed += left.len();
        look.drop_all(&left);
        self.apply(key, plan::Changes { delete: left, ..plan::Changes::default() }).await?;
        if none {
            self.counted.forget(key);
        } else {
            self.counted.looked(key, look);
        }
        Ok(changed)
    }

    /// New ones first, so that no endpoint is missing in between.
    async fn apply(&self, key: &ObjectKey, changes: plan::Changes) -> Result<(), ReconcileError> {
        let api: Api<EndpointSlice> = api_for(&self.client, key);
        for slice in &changes.create {
            match api.create(&PostParams::default(), slice).await {
                Ok(slice) => {
                    self.counted.changed("create");
                    self.pending.created(key, &slice);
                }
                Err(error) if namespace_terminating(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        for slice in &changes.update {
            let slice = api.replace(&slice.name_any(), &PostParams::default(), slice).await?;
            self.counted.changed("update");
            self.pending.created(key, &slice);
        }
        for slice in &changes.delete {
            match api.delete(&slice.name_any(), &DeleteParams::default()).await {
                Err(error) if code_of(&error) != 404 => return Err(error.into()),
                _ => {
                    self.counted.changed("delete");
                    self.pending.deleted(key, slice.as_ref());
                }
            }
        }
        Ok(())
    }
}
