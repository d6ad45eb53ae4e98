//! Says how much room drivers have (`storageCapacity: true` of their CSIDriver), for the scheduler.

use super::parameters::Parameters;
use super::services::Services;
use super::topology::{Places, Segment};
use super::{CsiConfig, requeue_for_drivers};
use crate::capacities::{self, DRIVER_NAME, MANAGED_BY, Room};
use crate::csi::ControllerService;
use crate::csi::controller_messages::{
    ControllerRpcType, GET_CAPACITY, GetCapacityRequest, GetCapacityResponse,
};
use crate::csi::messages::Topology;
use coracle_client::beat::Patience;
use coracle_client::{Action, Context, Controller, Informer, ReconcileError, Reconciler, WorkQueue};
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::time::Duration;

/// Between looks, beside those that changes of volumes bring: others may use the same storage. Upstream's
/// `--capacity-poll-interval`.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

struct Capacity {
    client: kube::Client,
    classes: Informer<StorageClass>,
    nodes: Informer<Node>,
    csi_nodes: Informer<CSINode>,
    capacities: Informer<CSIStorageCapacity>,
    services: Services,
}

/// Runs until `context.stop` is cancelled.
pub async fn run(context: &Context, config: &CsiConfig, services: Services) {
    let informers = &context.informers;
    let this = Capacity {
        client: context.client.clone(),
        classes: informers.of(),
        nodes: informers.of(),
        csi_nodes: informers.of(),
        capacities: informers.of(),
        services,
    };
    let (classes, csi_nodes, nodes) = (this.classes.clone(), this.csi_nodes.clone(), this.nodes.clone());
    let (capacities, volumes) = (this.capacities.clone(), informers.of::<PersistentVolume>());
    let objects = informers.of::<CSIDriver>();
    let everything = {
        let objects = objects.clone();
        move || {
            objects.iter().filter(|driver| tells(driver)).map(|driver| driver.name_any()).collect::<Vec<_>>()
        }
    };
    let queue = WorkQueue::new();
    requeue_for_drivers(context, config, &queue, everything.clone());
    let for_class = everything.clone();
    Controller::with_queue(this, queue)
        // Also those that tell no longer: what they told goes.
        .watch(&objects, |delta| delta.object().map(|driver| driver.name_any()))
        .watch(&classes, move |_| for_class())
        .watch(&csi_nodes, move |_| everything())
        .watch(&volumes, |delta| {
            // Room changes when a volume comes or goes, not with its phases.
            let volume = delta.object().filter(|_| delta.old.is_none() || delta.new.is_none())?;
            Some(volume.spec.as_ref()?.csi.as_ref()?.driver.clone())
        })
        .reads(&nodes)
        .reads(&capacities)
        .run(context.stop.clone())
        .await;
}

fn tells(driver: &CSIDriver) -> bool {
    driver.spec.storage_capacity == Some(true)
}

impl Reconciler for Capacity {
    /// A driver.
    type Key = String;
    const PATIENCE: Option<Patience> = Some(Patience::Long);

    fn name(&self) -> &'static str {
        "csi-capacity"
    }

    async fn reconcile(&self, driver: &String) -> Result<Action, ReconcileError> {
        let asked = self.services.object(driver).is_some_and(|object| tells(&object));
        let service =
            self.services.of(driver).await.map_err(|error| ReconcileError::Other(error.to_string()))?;
        let service = service.filter(|service| asked && service.can(ControllerRpcType::GetCapacity));
        let (rooms, next) = match service {
            Some(service) => (self.rooms(driver, &service).await?, Action::RequeueAfter(RETRY_INTERVAL)),
            // A driver that is only away for a moment has its room still.
            None if asked && self.services.is_ours(driver) => return Ok(Action::AwaitChange),
            None => (Vec::new(), Action::AwaitChange),
        };
        let labels =
            [(DRIVER_NAME.to_owned(), driver.clone()), (MANAGED_BY.to_owned(), "coracle".to_owned())];
        capacities::publish(&self.client, &self.capacities, &labels.into(), &rooms).await?;
        Ok(next)
    }
}

impl Capacity {
    async fn rooms(&self, driver: &str, service: &ControllerService) -> Result<Vec<Room>, ReconcileError> {
        let places: Vec<Option<Segment>> = if service.has_topology {
            let places = Places::of(driver, &self.nodes.list(), &self.csi_nodes.list());
            places.all().into_iter().map(Some).collect()
        } else {
            vec![None]
        };
        let mut rooms = Vec::new();
        for class in self.classes.iter().filter(|class| class.provisioner == driver) {
            let waits = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
            // What is wrong with its parameters its claims are told.
            let parameters = Parameters::of(&class.parameters.clone().unwrap_or_default());
            let Some(parameters) = parameters.ok().filter(|_| waits) else { continue };
            for place in &places {
                let room =
                    room(service, &class.name_any(), parameters.for_driver.clone(), place.as_ref()).await?;
                rooms.push(room);
            }
        }
        Ok(rooms)
    }
}

async fn room(
    service: &ControllerService,
    class: &str,
    parameters: BTreeMap<String, String>,
    place: Option<&Segment>,
) -> Result<Room, ReconcileError> {
    let request = GetCapacityRequest {
        volume_capabilities: Vec::new(),
        parameters,
        accessible_topology: place.map(|segments| Topology { segments: segments.clone() }),
    };
    let answer: GetCapacityResponse = service
        .client
        .call(GET_CAPACITY, request)
        .await
        .map_err(|error| ReconcileError::Other(format!("the room of class {class}: {error}")))?;
    Ok(Room {
        class: class.to_owned(),
        place: place.cloned().unwrap_or_default(),
        bytes: answer.available_capacity.max(0),
        largest: answer.maximum_volume_size.map(|size| size.value),
    })
}
