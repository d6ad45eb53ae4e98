//! Which drivers' volumes are this process's to make, attach and grow.

use crate::csi::{CallError, ControllerService, Driver, Drivers};
use crate::facts;
use coracle_client::Informer;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::Api;
use kube::api::ListParams;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The annotation of a CSIDriver by which an administrator hands the driver's controller side to this process. Without it
/// nothing is done for the driver: its own sidecars (external-provisioner, -attacher, -resizer, -snapshotter) do it.
const CONTROLLER: &str = "coracle.io/controller";
const BUILT_IN: &str = "built-in";

/// Upstream's flag `--extra-create-metadata` of external-provisioner, as an annotation of the CSIDriver: "true" tells the
/// driver the names of the claim and its volume.
const EXTRA_METADATA: &str = "coracle.io/extra-create-metadata";

/// Until it is looked again whether a sidecar works for the driver. Shorter, and busy drivers cost requests; longer, and one
/// that is started beside finds work done for so long.
const SIDECARS_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("leases of sidecars cannot be listed: {0}")]
    Api(#[from] kube::Error),
    #[error(
        "CSIDriver {driver} is annotated {CONTROLLER}={BUILT_IN}, but its own sidecar holds the lease {lease}: one of the two has to go"
    )]
    Sidecar { driver: String, lease: String },
}

/// Controller services of the drivers that are registered on this node. Cloning shares what is known of them.
#[derive(Clone)]
pub struct Services {
    client: kube::Client,
    drivers: Drivers,
    objects: Informer<CSIDriver>,
    timeout: Duration,
    /// Of each driver the life that was asked, and what it said.
    known: Arc<Mutex<HashMap<String, Known>>>,
    /// When it was last seen that no sidecar works for the driver.
    alone: Arc<Mutex<HashMap<String, Instant>>>,
}

type Known = (Arc<Driver>, Option<Arc<ControllerService>>);

impl Services {
    pub fn new(
        client: kube::Client,
        drivers: Drivers,
        objects: Informer<CSIDriver>,
        timeout: Duration,
    ) -> Self {
        Self { client, drivers, objects, timeout, known: Arc::default(), alone: Arc::default() }
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
    pub async fn of(&self, driver: &str) -> Result<Option<Arc<ControllerService>>, ServiceError> {
        let Some(registered) = self.drivers.get(driver).filter(|_| self.is_ours(driver)) else {
            return Ok(None);
        };
        self.look_for_sidecars(driver).await?;
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

    /// Whoever annotated the driver may have left its sidecars there: two would do everything twice.
    async fn look_for_sidecars(&self, driver: &str) -> Result<(), ServiceError> {
        let looked = self.alone.lock().get(driver).copied();
        if looked.is_some_and(|at| at.elapsed() < SIDECARS_INTERVAL) {
            return Ok(());
        }
        for lease in leases(driver) {
            if self.is_held(&lease).await? {
                return Err(ServiceError::Sidecar { driver: driver.to_owned(), lease });
            }
        }
        self.alone.lock().insert(driver.to_owned(), Instant::now());
        Ok(())
    }

    /// Whether somebody holds the lease, in whatever namespace it is.
    pub async fn is_held(&self, lease: &str) -> Result<bool, kube::Error> {
        let api: Api<Lease> = Api::all(self.client.clone());
        let named = ListParams::default().fields(&format!("metadata.name={lease}"));
        Ok(api.list(&named).await?.items.iter().any(|lease| is_held(lease, Timestamp::now())))
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

/// By which upstream's external-provisioner, -attacher, -resizer and -snapshotter elect their leaders.
fn leases(driver: &str) -> [String; 4] {
    let name = driver.replace('/', "-");
    [
        name.clone(),
        format!("external-attacher-leader-{name}"),
        format!("external-snapshotter-leader-{name}"),
        format!("external-resizer-{}", name.replace('.', "-")),
    ]
}

fn is_held(lease: &Lease, now: Timestamp) -> bool {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.unwrap_or(0);
    let until =
        spec.renew_time.and_then(|at| at.0.checked_add(jiff::SignedDuration::from_secs(seconds.into())).ok());
    spec.holder_identity.is_some_and(|holder| !holder.is_empty()) && until.is_some_and(|until| until > now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_lease_is_held_until_its_time_is_over() {
        let lease = |holder: &str| -> Lease {
            serde_json::from_value(json!({ "metadata": {}, "spec": { "holderIdentity": holder,
                "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z" } }))
            .unwrap()
        };
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert!(is_held(&lease("a"), at("2026-01-01T00:00:14Z")));
        assert!(!is_held(&lease("a"), at("2026-01-01T00:00:16Z")));
        assert!(
            !is_held(&lease(""), at("2026-01-01T00:00:01Z")) && !is_held(&Lease::default(), Timestamp::now())
        );
    }
}
