//! Whether a store that several servers share is reached: a server that is cut off from it says that it is not ready, so that
//! nodes and load balancers turn to another one. It is alive: starting it again would help nobody.

use coracle_api::error::chain;
use coracle_apiserver::health::{Health, Matters};
use coracle_apiserver::store::Store;
use std::sync::Arc;
use std::time::Duration;

/// Upstream's name of this check.
const CHECK: &str = "etcd-readiness";
/// One linearizable read each time. With the next, and what a node takes to look at its server, less than five seconds.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// What upstream gives its own check (`--etcd-readycheck-timeout`). Other members than a silent one are asked meanwhile.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// Looks for ever.
pub async fn watch(store: Arc<dyn Store>, health: Health) {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let state = match tokio::time::timeout(LOOK_TIMEOUT, store.reach()).await {
            Ok(answer) => answer.map_err(|e| chain(&e)),
            Err(_) => Err(format!("no answer within {} ms", LOOK_TIMEOUT.as_millis())),
        };
        let was_well = health.state(CHECK).is_none_or(|state| state.is_ok());
        match &state {
            Err(why) if was_well => tracing::warn!(why, "the store is not reached, this server is not ready"),
            Ok(()) if !was_well => tracing::info!("the store is reached again"),
            _ => {}
        }
        health.report(CHECK, Matters::Ready, state);
    }
}
