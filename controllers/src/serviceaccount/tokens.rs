//! Secrets of type `kubernetes.io/service-account-token`: filled with a token that does not expire, deleted with
//! their account, and no longer named by it once they are gone.

use super::RootCa;
use crate::clients::Clients;
use crate::common::code_of;
use coracle_api::well_known;
use coracle_client::informer::{api_for, deleting, uid_of};
use coracle_client::{Action, Controller, Delta, Informer, ObjectKey, ReconcileError, Reconciler};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub(super) const TYPE: &str = well_known::SERVICE_ACCOUNT_TOKEN;
pub(super) const ACCOUNT_NAME: &str = well_known::SERVICE_ACCOUNT_NAME;
pub(super) const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// Signs tokens for Secrets; the one who holds the service-account key implements it.
pub trait LegacyTokens: Send + Sync {
    /// A token of the account that lives as long as the Secret.
    fn sign(&self, account: &ServiceAccount, secret: &Secret) -> Result<String, String>;
}

/// Secrets that went, with the account that each was of.
type Gone = Arc<Mutex<HashMap<ObjectKey, Named>>>;

/// The account that a Secret says it is of.
#[derive(Clone)]
struct Named {
    name: String,
    uid: Option<String>,
}

impl Named {
    fn by(secret: &Secret) -> Option<Self> {
        let name = secret.annotations().get(ACCOUNT_NAME)?.clone();
        Some(Self { name, uid: secret.annotations().get(ACCOUNT_UID).cloned() })
    }

    fn is(&self, account: &ServiceAccount) -> bool {
        self.uid.as_ref().is_none_or(|uid| *uid == uid_of(account))
    }
}

struct Tokens {
    client: kube::Client,
    accounts: Informer<ServiceAccount>,
    secrets: Informer<Secret>,
    signer: Arc<dyn LegacyTokens>,
    ca_pem: String,
    gone: Gone,
}

/// Runs the controller until `stop` is cancelled.
pub async fn run(clients: Clients, signer: Arc<dyn LegacyTokens>, ca: RootCa, stop: CancellationToken) {
    ca.each(stop, |pem, stop| run_with(clients.clone(), signer.clone(), pem, stop)).await;
}

async fn run_with(clients: Clients, signer: Arc<dyn LegacyTokens>, ca_pem: String, stop: CancellationToken) {
    let accounts = clients.informers.of::<ServiceAccount>();
    let only = &format!("type={TYPE}");
    let secrets = clients.informers.selected::<Secret>(only, stop.clone());
    let gone = Gone::default();
    // Upstream's token controller acts as the controller manager itself.
    let reconciler = Tokens {
        client: clients.own(),
        accounts: accounts.clone(),
        secrets: secrets.clone(),
        signer,
        ca_pem,
        gone: gone.clone(),
    };
    let by_secret = move |delta: &Delta<Secret>| {
        let secret = delta.object()?;
        let key = ObjectKey::of(secret.as_ref());
        if let (None, Some(named)) = (&delta.new, Named::by(secret)) {
            gone.lock().insert(key.clone(), named);
        }
        Some(key)
    };
    let by_account = {
        let secrets = secrets.clone();
        move |delta: &Delta<ServiceAccount>| secrets_of(delta, &secrets)
    };
    Controller::new(reconciler).watch(&secrets, by_secret).watch(&accounts, by_account).run(stop).await;
}

/// The Secrets of an account that came or went.
fn secrets_of(delta: &Delta<ServiceAccount>, secrets: &Informer<Secret>) -> Vec<ObjectKey> {
    let (Some(account), false) = (delta.object(), delta.old.is_some() && delta.new.is_some()) else {
        return Vec::new();
    };
    let name = account.name_any();
    let all = secrets.list_in(&account.namespace().unwrap_or_default());
    let named = all.iter().filter(|s| s.annotations().get(ACCOUNT_NAME) == Some(&name));
    named.map(|s| ObjectKey::of(s.as_ref())).collect()
}

impl Reconciler for Tokens {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "legacy-service-account-token"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(secret) = self.secrets.get_key(key) else { return self.forget(key).await };
        self.gone.lock().remove(key);
        let Some(named) = Named::by(&secret).filter(|_| !deleting(secret.as_ref())) else {
            return Ok(Action::AwaitChange);
        };
        let api: Api<Secret> = api_for(&self.client, key);
        match self.account(key, &named).await? {
            None => {
                let uid = Preconditions { uid: secret.uid(), resource_version: None };
                let params = DeleteParams::default().preconditions(uid);
                match api.delete(&key.name, &params).await {
                    Err(error) if code_of(&error) != 404 => Err(error.into()),
                    _ => Ok(Action::AwaitChange),
                }
            }
            Some(account) => {
                let filled = self.filled(&secret, &account)?;
                if &filled != secret.as_ref() {
                    api.replace(&key.name, &PostParams::default(), &filled).await?;
                }
                Ok(Action::AwaitChange)
            }
        }
    }
}

impl Tokens {
    /// The account that the Secret belongs to; asked of the API when the informer does not know it, because a
    /// Secret may be created in the same breath.
    async fn account(
        &self,
        key: &ObjectKey,
        named: &Named,
    ) -> Result<Option<Arc<ServiceAccount>>, kube::Error> {
        if let Some(known) = self.accounts.get(&key.namespace, &named.name).filter(|a| named.is(a)) {
            return Ok(Some(known));
        }
        let live = api_for::<ServiceAccount>(&self.client, key).get_opt(&named.name).await?;
        Ok(live.filter(|account| named.is(account)).map(Arc::new))
    }

    /// Takes a Secret that is gone from the list of its account.
    async fn forget(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(named) = self.gone.lock().get(key).cloned() else { return Ok(Action::AwaitChange) };
        let api = api_for::<ServiceAccount>(&self.client, key);
        if let Some(mut account) = api.get_opt(&named.name).await?.filter(|account| named.is(account)) {
            let all = account.secrets.take().unwrap_or_default();
            let before = all.len();
            let left: Vec<_> = all.into_iter().filter(|s| s.name.as_ref() != Some(&key.name)).collect();
            if left.len() < before {
                account.secrets = (!left.is_empty()).then_some(left);
                api.replace(&named.name, &PostParams::default(), &account).await?;
            }
        }
        self.gone.lock().remove(key);
        Ok(Action::AwaitChange)
    }

    fn filled(&self, secret: &Secret, account: &ServiceAccount) -> Result<Secret, ReconcileError> {
        let mut filled = secret.clone();
        filled.annotations_mut().insert(ACCOUNT_UID.to_owned(), uid_of(account));
        let namespace = secret.namespace().unwrap_or_default();
        let data = filled.data.get_or_insert_default();
        data.insert("ca.crt".to_owned(), ByteString(self.ca_pem.clone().into_bytes()));
        if data.get("namespace").is_none_or(|there| there.0.is_empty()) {
            data.insert("namespace".to_owned(), ByteString(namespace.into_bytes()));
        }
        if data.get("token").is_none_or(|token| token.0.is_empty()) {
            let token = self.signer.sign(account, secret).map_err(ReconcileError::Other)?;
            data.insert("token".to_owned(), ByteString(token.into_bytes()));
        }
        Ok(filled)
    }
}
