//! The `default` service account of every namespace.

use super::namespace_of;
use crate::clients::Clients;
use crate::common::{code_of, namespace_terminating};
use coracle_client::informer::deleting;
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio_util::sync::CancellationToken;

const CONTROLLER: &str = "service-account-controller";
const NAME: &str = "default";

struct Accounts {
    client: kube::Client,
    namespaces: Informer<Namespace>,
    accounts: Informer<ServiceAccount>,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, stop: CancellationToken) {
    let namespaces = clients.informers.of::<Namespace>();
    let only = &format!("metadata.name={NAME}");
    let accounts = clients.informers.selected::<ServiceAccount>(only, stop.clone());
    let reconciler = Accounts {
        client: clients.client(CONTROLLER),
        namespaces: namespaces.clone(),
        accounts: accounts.clone(),
    };
    Controller::new(reconciler).objects(&namespaces).watch(&accounts, namespace_of).run(stop).await;
}

impl Reconciler for Accounts {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        CONTROLLER
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let alive = self.namespaces.get_key(key).is_some_and(|ns| !deleting(ns.as_ref()));
        if !alive || self.accounts.get(&key.name, NAME).is_some() {
            return Ok(Action::AwaitChange);
        }
        let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
        let account = ServiceAccount { metadata, ..ServiceAccount::default() };
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &key.name);
        match api.create(&PostParams::default(), &account).await {
            Ok(_) => Ok(Action::AwaitChange),
            Err(error) if code_of(&error) == 409 || namespace_terminating(&error) => Ok(Action::AwaitChange),
            Err(error) => Err(error.into()),
        }
    }
}
