//! The same claims of a driver of CSI without sidecars: the tests' own, whose volumes are directories, bound in the kernel.

use super::{Stage, claims};
use crate::Error;
use crate::driver::{Driver, driver};
use crate::http::Call;
use crate::pods::PATIENCE;
use crate::table::Row;
use coracle_storage::csi::controller_messages::ControllerRpcType;
use coracle_storage::csi::messages::NodeRpcType;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NAME: &str = "csi.bench.example";
const REGISTRY: &str = "/var/lib/coracle/kubelet/plugins_registry";
const DRIVERS: &str = "/apis/storage.k8s.io/v1/csidrivers";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

pub async fn run(stage: &Stage<'_>) -> Result<Vec<Row>, Error> {
    let dir = tempfile::Builder::new().prefix("coracle-bench").tempdir()?;
    let driver = started(dir.path())?;
    let spec = json!({ "attachRequired": true, "volumeLifecycleModes": ["Persistent"] });
    let annotations = json!({ "coracle.io/controller": "built-in" });
    let object = json!({ "metadata": { "name": NAME, "annotations": annotations }, "spec": spec });
    stage.post(DRIVERS, &object).await?;
    for (name, mode) in [("bench-csi", "WaitForFirstConsumer"), ("bench-csi-now", "Immediate")] {
        let class = json!({ "metadata": { "name": name }, "provisioner": NAME, "volumeBindingMode": mode });
        stage.post(CLASSES, &class).await?;
    }
    let measured = measure(stage).await;
    for path in [format!("{CLASSES}/bench-csi"), format!("{CLASSES}/bench-csi-now")] {
        stage.delete(&path).await?;
    }
    until_none_is_left(&driver).await?;
    stage.delete(&format!("{DRIVERS}/{NAME}")).await?;
    std::fs::remove_file(Path::new(REGISTRY).join(format!("{NAME}-reg.sock")))?;
    driver.kill();
    measured
}

fn started(dir: &Path) -> Result<Arc<Driver>, Error> {
    let driver = driver(NAME, dir, &[NodeRpcType::StageUnstageVolume]);
    {
        let mut state = driver.state.lock().map_err(|_| "the driver panicked")?;
        state.binds = true;
        state.controller.capabilities =
            [ControllerRpcType::CreateDeleteVolume, ControllerRpcType::PublishUnpublishVolume].into();
    }
    let endpoint = driver.serve(dir.join("csi.sock"));
    driver.register(Path::new(REGISTRY), &endpoint);
    Ok(driver)
}

async fn measure(stage: &Stage<'_>) -> Result<Vec<Row>, Error> {
    until_registered(stage).await?;
    let mut rows = claims::one_by_one(stage, "CSI", "bench-csi").await?;
    rows.push(claims::at_once(stage, "CSI", "bench-csi-now", None).await?);
    Ok(rows)
}

async fn until_registered(stage: &Stage<'_>) -> Result<(), Error> {
    let begun = Instant::now();
    loop {
        let nodes = stage.target.connect().await?.call(Call::get("/apis/storage.k8s.io/v1/csinodes")).await?;
        if String::from_utf8_lossy(&nodes).contains(NAME) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err("the node does not register its driver".into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A driver that goes before its volumes leaves them to nobody.
async fn until_none_is_left(driver: &Driver) -> Result<(), Error> {
    let begun = Instant::now();
    loop {
        let (left, violations) = {
            let state = driver.state.lock().map_err(|_| "the driver panicked")?;
            (state.controller.made.len() + state.staged.len(), state.controller.violations.clone())
        };
        if !violations.is_empty() {
            return Err(format!("the driver was called as it may not be: {violations:?}").into());
        }
        if left == 0 {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("{left} volumes of the driver are left").into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
