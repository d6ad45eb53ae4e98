//! Events for configuration files that changed while the server runs, on the Node whose files they are.

use crate::node::regarding;
use coracle_apiserver::config_file::Reload;
use coracle_client::Recorder;
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
