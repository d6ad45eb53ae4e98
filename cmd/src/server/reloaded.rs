//! Events for configuration files that changed while the server runs, on the Node whose files they are.

use coracle_apiserver::config_file::Reload;
use coracle_client::Recorder;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// Tells of every reload, for ever. The reasons are those of the scheduler's configuration.
pub async fn tell(mut reloads: Receiver<Reload>, client: kube::Client, node: String) {
    let recorder = Recorder::new(client, "kube-apiserver", &node);
    let regarding = regarding(&node);
    loop {
        let reload = match reloads.recv().await {
            Ok(reload) => reload,
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        let path = reload.path.display();
        match &reload.outcome {
            Ok(()) => {
                let text = format!("the API server runs with what {path} says now");
                recorder.event(regarding.clone(), "Normal", "ConfigurationInForce", text);
            }
            Err(why) => {
                let text = format!("{path}: {why}; the last good one stays in force");
                recorder.event(regarding.clone(), "Warning", "ConfigurationRefused", text);
            }
        }
    }
}

/// The Node of this machine, as events name it: it need not be there yet.
pub fn regarding(node: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.to_owned()),
        uid: Some(node.to_owned()),
        ..ObjectReference::default()
    }
}
