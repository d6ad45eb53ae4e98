//! Keeps the IPAddress objects of Services' cluster IPs: makes again what somebody has deleted, puts right what names
//! somebody else, deletes what belongs to nobody (KEP-1880). A cluster IP of no range is only told of.
//!
//! It is upstream's repair loop of the API server, not of the controller manager: it runs with the server, whoever runs
//! the controllers. Upstream looks at a Service again every three minutes; here every change of an address wakes it.

mod plan;

use crate::common::code_of;
use coracle_client::informer::{Delta, uid_of};
use coracle_client::{
    Action, Context, Controller, Informer, ObjectKey, ReconcileError, Reconciler, Recorder,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use plan::{Fate, Lack};
use std::sync::Arc;

const CONTROLLER: &str = "ipallocator-repair-controller";

struct Repair {
    client: kube::Client,
    services: Informer<Service>,
    addresses: Informer<IPAddress>,
    ranges: Informer<ServiceCIDR>,
    recorder: Recorder,
}

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Service(ObjectKey),
    /// By its IP.
    Address(String),
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Service(key) => write!(f, "service {key}"),
            Self::Address(ip) => write!(f, "ipaddress {ip}"),
        }
    }
}

/// Runs until the context is stopped. Its client needs the rights of the API server itself.
pub async fn run(context: Context) {
    let services = context.informers.of::<Service>();
    let addresses = context.informers.of::<IPAddress>();
    let ranges = context.informers.of::<ServiceCIDR>();
    let repair = Repair {
        recorder: Recorder::new(context.client.clone(), CONTROLLER, ""),
        client: context.client,
        services: services.clone(),
        addresses: addresses.clone(),
        ranges: ranges.clone(),
    };
    let all = services.clone();
    let of_range = move |_: &Delta<ServiceCIDR>| {
        all.iter().map(|service| Subject::Service(ObjectKey::of(service.as_ref()))).collect::<Vec<_>>()
    };
    let of_service =
        |delta: &Delta<Service>| delta.object().map(|s| Subject::Service(ObjectKey::of(s.as_ref())));
    let of_address = |delta: &Delta<IPAddress>| delta.object().map(|ip| Subject::Address(ip.name_any()));
    Controller::new(repair)
        .watch(&services, of_service)
        .watch(&addresses, of_address)
        .watch(&ranges, of_range)
        .workers(2)
        .run(context.stop)
        .await;
}

impl Reconciler for Repair {
    type Key = Subject;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, subject: &Subject) -> Result<Action, ReconcileError> {
        match subject {
            Subject::Service(key) => {
                if let Some(service) = self.services.get_key(key) {
                    self.all_of(&service).await?;
                }
                Ok(Action::AwaitChange)
            }
            Subject::Address(ip) => match self.addresses.get("", ip) {
                Some(address) => {
                    self.holder_of(&address).await?;
                    self.judge(&address).await
                }
                None => self.holders(ip).await.map(|()| Action::AwaitChange),
            },
        }
    }
}

impl Repair {
    /// Whether the Service of that name has the address, as far as is known; `None` where there is none.
    fn known(&self, ip: &str) -> impl Fn(&str, &str) -> Option<bool> {
        move |namespace, name| self.services.get(namespace, name).map(|s| plan::holds(&s, ip))
    }

    /// Looks at the Service that the address names; where that has it not, at whoever has.
    async fn holder_of(&self, address: &IPAddress) -> Result<(), ReconcileError> {
        let ip = address.name_any();
        let named = plan::parent(address).and_then(|(namespace, name)| self.services.get(namespace, name));
        match named.filter(|service| plan::holds(service, &ip)) {
            Some(service) => self.one_of(&service, &ip).await,
            None => self.holders(&ip).await,
        }
    }

    async fn holders(&self, ip: &str) -> Result<(), ReconcileError> {
        let holders: Vec<Arc<Service>> = self.services.iter().filter(|s| plan::holds(s, ip)).collect();
        for service in holders {
            self.one_of(&service, ip).await?;
        }
        Ok(())
    }

    async fn all_of(&self, service: &Service) -> Result<(), ReconcileError> {
        for ip in plan::ips(service) {
            self.one_of(service, &ip.to_string()).await?;
        }
        Ok(())
    }

    /// Whether a range has the address, or had it a moment ago: ranges come by a watch of their own.
    async fn is_in_range(&self, ip: &str) -> Result<bool, ReconcileError> {
        if self.ranges.iter().any(|range| plan::has(&range, ip)) {
            return Ok(true);
        }
        let ranges = Api::<ServiceCIDR>::all(self.client.clone()).list(&ListParams::default()).await?;
        Ok(ranges.iter().any(|range| plan::has(range, ip)))
    }

    async fn one_of(&self, service: &Service, ip: &str) -> Result<(), ReconcileError> {
        if !self.is_in_range(ip).await? {
            let family = plan::family(ip);
            let message = format!(
                "Cluster IP [{family}]: {ip} is not within any configured Service CIDR; please recreate service"
            );
            self.recorder.warning(service, "ClusterIPOutOfRange", message);
            return Ok(());
        }
        let known = self.addresses.get("", ip);
        if plan::lack(service, ip, known.as_deref(), self.known(ip)) == Lack::Nothing {
            return Ok(());
        }
        // What is watched may be behind: a Service and its address come by two watches.
        let Some(service) = self.now(service).await?.filter(|service| plan::holds(service, ip)) else {
            return Ok(());
        };
        let addresses: Api<IPAddress> = Api::all(self.client.clone());
        let address = addresses.get_opt(ip).await?;
        let lack = plan::lack(&service, ip, address.as_ref(), self.known(ip));
        self.tell(&service, ip, lack);
        match (lack, address) {
            (Lack::Nothing | Lack::Sole, _) => Ok(()),
            (_, address) => {
                if let Some(address) = address {
                    self.delete(&address).await?;
                }
                let wanted: IPAddress = serde_json::from_value(plan::reservation(&service, ip))
                    .map_err(|error| ReconcileError::Other(error.to_string()))?;
                addresses.create(&PostParams::default(), &wanted).await?;
                Ok(())
            }
        }
    }

    async fn now(&self, service: &Service) -> Result<Option<Service>, ReconcileError> {
        let namespace = service.namespace().unwrap_or_default();
        let api: Api<Service> = Api::namespaced(self.client.clone(), &namespace);
        let now = api.get_opt(&service.name_any()).await?;
        Ok(now.filter(|now| uid_of(now) == uid_of(service)))
    }

    fn tell(&self, service: &Service, ip: &str, lack: Lack) {
        let family = plan::family(ip);
        let (reason, message) = match lack {
            Lack::Nothing | Lack::Labels => return,
            Lack::Object => {
                let message = format!("Cluster IP [{family}]: {ip} is not allocated; repairing");
                ("ClusterIPNotAllocated", message)
            }
            Lack::Reference => {
                let key = ObjectKey::of(service);
                let message = format!(
                    "the ClusterIP [{family}]: {ip} for Service {key} has a wrong reference; repairing"
                );
                ("ClusterIPNotAllocated", message)
            }
            Lack::Sole => {
                let message = format!(
                    "Cluster IP [{family}]:{ip} was assigned to multiple services; please recreate service"
                );
                ("ClusterIPAlreadyAllocated", message)
            }
        };
        self.recorder.warning(service, reason, message);
    }

    /// An address may be nobody's.
    async fn judge(&self, address: &IPAddress) -> Result<Action, ReconcileError> {
        let ip = address.name_any();
        match plan::fate(address, self.known(&ip), Timestamp::now()) {
            Fate::Stays => return Ok(Action::AwaitChange),
            Fate::Waits(left) => return Ok(Action::RequeueAfter(left)),
            Fate::Stray | Fate::Leaked | Fate::Wrong => {}
        }
        let live = match plan::parent(address) {
            Some((namespace, name)) => {
                Api::<Service>::namespaced(self.client.clone(), namespace).get_opt(name).await?
            }
            None => None,
        };
        let holds = |_: &str, _: &str| live.as_ref().map(|service| plan::holds(service, &ip));
        let fate = plan::fate(address, holds, Timestamp::now());
        let (namespace, name) = plan::parent(address).unwrap_or_default();
        let (reason, message) = match fate {
            Fate::Stays => return Ok(Action::AwaitChange),
            Fate::Waits(left) => return Ok(Action::RequeueAfter(left)),
            Fate::Stray => {
                let text = "appears to have been modified, not referencing a Service: cleaning up";
                ("IPAddressNotAllocated", format!("IPAddress {ip} {text}"))
            }
            Fate::Leaked => {
                let text = "appears to have leaked: cleaning up";
                ("IPAddressNotAllocated", format!("IPAddress: {ip} for Service {namespace}/{name} {text}"))
            }
            Fate::Wrong => {
                let text = "has a wrong reference; cleaning up";
                ("IPAddressWrongReference", format!("IPAddress: {ip} for Service {namespace}/{name} {text}"))
            }
        };
        self.recorder.warning(address, reason, message);
        self.delete(address).await?;
        Ok(Action::AwaitChange)
    }

    /// Deletes an address that is as it was seen.
    async fn delete(&self, address: &IPAddress) -> Result<(), ReconcileError> {
        let seen = Preconditions { uid: address.uid(), resource_version: address.resource_version() };
        let params = DeleteParams { preconditions: Some(seen), ..DeleteParams::default() };
        let api: Api<IPAddress> = Api::all(self.client.clone());
        match api.delete(&address.name_any(), &params).await {
            Err(error) if code_of(&error) != 404 => Err(error.into()),
            _ => Ok(()),
        }
    }
}
