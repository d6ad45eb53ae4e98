//! What happens to the store, told on the Node on whose disk it is: events, and a condition while writes are refused.

use crate::node::regarding;
use coracle_apiserver::store::sled::{Incident, IncidentKind, Incidents};
use coracle_apiserver::strategy::STORE_READ_ONLY;
use coracle_client::{ObjectKey, Recorder, write};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::api::Patch;
use serde_json::{Value, json};
use std::time::Duration;

/// A condition that could not be written is tried again: at the start the Node may not have its kubelet yet.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Events that wait until they can be written; what happened before them is in the log only.
const WAITING: usize = 64;

/// Tells of every incident, for ever.
pub async fn tell(mut incidents: Incidents, client: kube::Client, node: String) {
    let recorder = Recorder::new(client.clone(), "kube-apiserver", &node);
    let mut told = Told { recorder, regarding: regarding(&node), refused: false, waiting: Vec::new() };
    let mut condition: Option<Value> = None;
    loop {
        let again = async {
            match condition {
                Some(_) => tokio::time::sleep(RETRY_INTERVAL).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            incident = incidents.next() => {
                condition = self::condition(&incident, Timestamp::now()).or(condition);
                told.tell(incident);
            }
            () = again => {}
        }
        if let Some(wanted) = &condition
            && set(&client, &node, wanted).await
        {
            condition = None;
        }
    }
}

/// The Node's condition after an incident, if it changes by it.
fn condition(incident: &Incident, now: Timestamp) -> Option<Value> {
    let (status, reason) = match incident.kind {
        IncidentKind::ReadOnly(refusal) => ("True", refusal.reason()),
        IncidentKind::Writable => ("False", "StoreWritable"),
        _ => return None,
    };
    Some(json!({
        "type": STORE_READ_ONLY,
        "status": status,
        "reason": reason,
        "message": incident.text,
        "lastHeartbeatTime": now.to_string(),
        "lastTransitionTime": now.to_string(),
    }))
}

/// Says whether that is done. A server without a kubelet has no Node, and then needs none that says that all is well.
async fn set(client: &kube::Client, node: &str, condition: &Value) -> bool {
    let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
    match write::patch_status::<Node>(client, &ObjectKey::new("", node), &patch).await {
        Ok(()) => true,
        Err(kube::Error::Api(answer)) if answer.code == 404 && condition["status"] == "False" => true,
        Err(error) => {
            tracing::debug!(%error, "the Node does not say yet whether the store can be written");
            false
        }
    }
}

/// Events, which wait while the store takes none.
struct Told {
    recorder: Recorder,
    regarding: ObjectReference,
    refused: bool,
    waiting: Vec<Incident>,
}

impl Told {
    fn tell(&mut self, incident: Incident) {
        match incident.kind {
            IncidentKind::ReadOnly(_) => self.refused = true,
            IncidentKind::Writable => self.refused = false,
            _ => {}
        }
        if self.waiting.len() == WAITING {
            self.waiting.remove(0);
        }
        self.waiting.push(incident);
        if self.refused {
            return;
        }
        for incident in self.waiting.drain(..) {
            let type_ = if incident.kind == IncidentKind::Writable { "Normal" } else { "Warning" };
            self.recorder.event(self.regarding.clone(), type_, incident.kind.reason(), incident.text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_apiserver::store::sled::Refusal;
    use std::time::SystemTime;

    fn incident(kind: IncidentKind) -> Incident {
        Incident { at: SystemTime::UNIX_EPOCH, kind, text: "the disk is full".to_owned() }
    }

    #[test]
    fn the_condition_tells_why_writes_are_refused() {
        let condition = |kind| condition(&incident(kind), Timestamp::UNIX_EPOCH);
        let full = condition(IncidentKind::ReadOnly(Refusal::DiskFull)).unwrap();
        assert_eq!(full["type"], "StoreReadOnly");
        assert_eq!((&full["status"], &full["reason"]), (&json!("True"), &json!("DiskFull")));
        assert_eq!(full["message"], "the disk is full");
        assert_eq!(condition(IncidentKind::Writable).unwrap()["status"], "False");
        assert_eq!(condition(IncidentKind::TailCut), None);
    }
}
