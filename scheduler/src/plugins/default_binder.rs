//! Binds through the pod's binding subresource.

use crate::cache::PodInfo;
use crate::framework::{Plugin, Point, Status};
use coracle_client::write;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use kube::api::ObjectMeta;

pub const POINTS: &[Point] = &[Point::Bind];

pub struct DefaultBinder {
    client: Option<kube::Client>,
}

impl DefaultBinder {
    pub fn new(client: Option<kube::Client>) -> Self {
        Self { client }
    }

    async fn post(&self, pod: &PodInfo, node: &str) -> Result<(), String> {
        let client = self.client.clone().ok_or("there is no API to bind through")?;
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(pod.key.name.clone()),
                namespace: Some(pod.key.namespace.clone()),
                uid: Some(pod.uid.clone()),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let bound = write::create_subresource::<Pod>(&client, "binding", &pod.key, &binding).await;
        bound.map_err(|e| e.to_string())
    }
}

#[async_trait::async_trait]
impl Plugin for DefaultBinder {
    fn name(&self) -> &'static str {
        "DefaultBinder"
    }

    fn points(&self) -> &'static [Point] {
        POINTS
    }

    async fn bind(&self, pod: &PodInfo, node: &str) -> Status {
        match self.post(pod, node).await {
            Ok(()) => Status::Success,
            Err(error) => Status::Error(error),
        }
    }
}
