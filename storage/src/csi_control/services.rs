//! Which drivers' volumes are this process's to make, attach and grow.

use crate::csi::{CallError, ControllerService, Driver, Drivers};
use crate::facts;
use coracle_client::Informer;
use k8s_openapi::api::storage::v1::CSIDriver;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The annotation of a CSIDriver by which an administrator hands the driver's controller side to this process. Without it
/// nothing is done for the driver: its own sidecars (external-provisioner, -attacher, -resizer) do it.
const CONTROLLER: &str = "coracle.io/controller";
const BUILT_IN: &str = "built-in";

/// Upstream's flag `--extra-create-metadata` of external-provisioner, as an annotation of the CSIDriver: "true" tells the
/// driver the names of the claim and its volume.
const EXTRA_METADATA: &str = "coracle.io/extra-create-metadata";

/// Controller services of the drivers that are registered on this node. Cloning shares what is known of them.
#[derive(Clone)]
pub struct Services {
    drivers: Drivers,
    objects: Informer<CSIDriver>,
    timeout: Duration,
    /// Of each driver the life that was asked, and what it said.
    known: Arc<Mutex<HashMap<String, Known>>>,
}

type Known = (Arc<Driver>, Option<Arc<ControllerService>>);

impl Services {
    pub fn new(drivers: Drivers, objects: Informer<CSIDriver>, timeout: Duration) -> Self {
        Self { drivers, objects, timeout, known: Arc::default() }
    }

    pub fn object(&self, driver: &str) -> Option<Arc<CSIDriver>> {
        self.objects.get("", driver)
    }

    /// Whether the driver was handed to this process, be it there or not.
    pub fn is_ours(&self, driver: &str) -> bool {
        self.object(driver).is_some_and(|object| is_built_in(&object))
    }

    pub fn wants_names(&self, driver: &str) -> bool {
        let object = self.object(driver);
        object.is_some_and(|object| facts::annotation(object.as_ref(), EXTRA_METADATA) == Some("true"))
    }

    /// The driver's service; `None` where the driver is somebody else's, is not registered here, or has no such service.
    pub async fn of(&self, driver: &str) -> Result<Option<Arc<ControllerService>>, CallError> {
        let Some(registered) = self.drivers.get(driver).filter(|_| self.is_ours(driver)) else {
            return Ok(None);
        };
        if let Some((life, service)) = self.known.lock().get(driver)
            && Arc::ptr_eq(life, &registered)
        {
            return Ok(service.clone());
        }
        let asked = ControllerService::connect(registered.client.socket(), self.timeout).await?;
        let service = asked.map(Arc::new);
        self.known.lock().insert(driver.to_owned(), (registered, service.clone()));
        Ok(service)
    }

    /// Whether the driver's node service is there and makes file systems grow.
    pub fn node_grows(&self, driver: &str) -> bool {
        let registered = self.drivers.get(driver);
        registered.is_some_and(|driver| driver.can(crate::csi::messages::NodeRpcType::ExpandVolume))
    }
}

pub fn is_built_in(driver: &CSIDriver) -> bool {
    facts::annotation(driver, CONTROLLER) == Some(BUILT_IN)
}
