//! Approves certificates of nodes, after asking whether the requester may have them.

use super::hosts::{self, Reserved};
use super::plan::{self, Permission};
use super::request::Wanted;
use super::{ACCOUNT, outdated};
use crate::clients::Clients;
use coracle_client::informer::deleting;
use coracle_client::{Action, Controller, Informer, ObjectKey, ReconcileError, Reconciler};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::PostParams;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a request for a serving certificate waits for its node's addresses, and how often it is looked at meanwhile.
const ADDRESSES_TIMEOUT: SignedDuration = SignedDuration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

struct Approver {
    client: kube::Client,
    requests: Informer<CertificateSigningRequest>,
    nodes: Informer<Node>,
    reserved: Reserved,
}

pub(super) async fn run(clients: Clients, reserved: Reserved, stop: CancellationToken) {
    let requests = clients.informers.of::<CertificateSigningRequest>();
    let nodes = clients.informers.of::<Node>();
    let reconciler = Approver {
        client: clients.client(ACCOUNT),
        requests: requests.clone(),
        nodes: nodes.clone(),
        reserved,
    };
    Controller::new(reconciler).objects(&requests).reads(&nodes).run(stop).await;
}

impl Reconciler for Approver {
    type Key = ObjectKey;

    fn name(&self) -> &'static str {
        "certificatesigningrequest-approving"
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(csr) = self.requests.get_key(key).filter(|c| !deleting(c.as_ref()) && !plan::is_decided(c))
        else {
            return Ok(Action::AwaitChange);
        };
        let spec = &csr.spec;
        // What cannot be read is nobody's client certificate; validation lets no such request in.
        let Ok(wanted) = Wanted::parse(&spec.request.0, spec.usages.as_deref().unwrap_or_default()) else {
            return Ok(Action::AwaitChange);
        };
        let username = spec.username.as_deref().unwrap_or_default();
        if let Err(why) = self.of_that_node(&spec.signer_name, &wanted) {
            let next = not_yet(&csr);
            if matches!(next, Action::AwaitChange) {
                tracing::warn!(
                    request = key.name,
                    requester = username,
                    why,
                    "certificate request left alone"
                );
            }
            return Ok(next);
        }
        let mut tried = Vec::new();
        for permission in plan::permissions(&spec.signer_name, username, &wanted) {
            if self.may(&csr, permission).await? {
                return self.approve(&csr, permission.message).await;
            }
            tried.push(permission.subresource);
        }
        if !tried.is_empty() {
            tracing::info!(request = key.name, ?tried, "subject access review was not approved");
        }
        Ok(Action::AwaitChange)
    }
}

/// The node's newest addresses may not have come here yet; after a while they will not come.
fn not_yet(csr: &CertificateSigningRequest) -> Action {
    let created = csr.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    if Timestamp::now().duration_since(created) < ADDRESSES_TIMEOUT {
        Action::RequeueAfter(LOOK_INTERVAL)
    } else {
        Action::AwaitChange
    }
}

impl Approver {
    /// Whether a kubelet's request is for a node that asks for itself, and for none but its own names.
    fn of_that_node(&self, signer: &str, wanted: &Wanted) -> Result<(), String> {
        let Some(name) = plan::node_of(signer, wanted) else { return Ok(()) };
        if hosts::is_api_server(name, &self.reserved) {
            return Err(format!("{name} is a name of the API server"));
        }
        if wanted.names.is_empty() {
            return Ok(());
        }
        let node = self.nodes.get("", name).ok_or_else(|| format!("there is no node {name}"))?;
        hosts::check(wanted, &node, &self.nodes.list(), &self.reserved)
    }

    async fn may(
        &self,
        csr: &CertificateSigningRequest,
        permission: Permission,
    ) -> Result<bool, ReconcileError> {
        let text = |t: &str| Some(t.to_owned());
        let attributes = ResourceAttributes {
            group: text("certificates.k8s.io"),
            resource: text("certificatesigningrequests"),
            subresource: text(permission.subresource),
            verb: text("create"),
            version: text("*"),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: csr.spec.username.clone(),
            uid: csr.spec.uid.clone(),
            groups: csr.spec.groups.clone(),
            extra: csr.spec.extra.clone(),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|s| s.allowed))
    }

    async fn approve(
        &self,
        csr: &CertificateSigningRequest,
        message: &str,
    ) -> Result<Action, ReconcileError> {
        let mut approved = csr.clone();
        let condition = CertificateSigningRequestCondition {
            type_: "Approved".to_owned(),
            status: "True".to_owned(),
            reason: Some("AutoApproved".to_owned()),
            message: Some(message.to_owned()),
            last_update_time: Some(Time(Timestamp::now())),
            ..CertificateSigningRequestCondition::default()
        };
        approved.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
        let name = csr.metadata.name.as_deref().unwrap_or_default();
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        match api.replace_subresource("approval", name, &PostParams::default(), &approved).await {
            Err(error) if !outdated(&error) => Err(error.into()),
            _ => Ok(Action::AwaitChange),
        }
    }
}
