//! Admission: what a write must be, and what it becomes, before it is stored
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/>).
//!
//! [`Chain`] holds upstream's plugins in upstream's order ([`Config`] says which of them), one file each. Plugins are
//! synchronous and decide from cached state; only resource quota writes, what it has charged. Behind them stand the
//! steps that users configure: policies and webhooks.

pub mod annotations;
mod certificates;
pub mod configuration;
pub mod deadline;
mod declared_features;
mod default_ingress_class;
mod default_storage_class;
mod default_toleration_seconds;
mod event_rate_limit;
mod image_policy;
mod limit_ranger;
mod local_path;
pub mod matching;
mod namespace_lifecycle;
mod node_restriction;
mod optional;
mod plugins;
mod pod_resize;
pub mod pod_security;
mod pod_topology_labels;
pub mod policy;
mod priority;
mod releases;
mod resource_quota;
mod rights;
mod runtime_class;
mod service_account;
mod step;
mod storage_object_in_use;
mod taint_nodes;
mod volume_resize;
pub mod webhook;

#[cfg(test)]
mod testing;

pub use coracle_requests::admission::{
    Admission, Attributes, Kind, Operation, RequestOptions, VersionConverter, kind_of,
};
pub use plugins::{Config, NEED_CONTROLLERS, NEEDS_NODE_LIFECYCLE, NEEDS_STORAGE_PROTECTION, PluginError};

use coracle_access::authz::{Asking, Authorizer, Gate};
use coracle_api::{ApiError, FieldError, Object, UserInfo};
use coracle_component_base::metrics::{Histogram, Metrics};
use coracle_requests::ObjectReader;
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
pub(crate) use step::{MutatingStep, Round, ValidatingStep, Write};

/// A write, as plugins see it.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub operation: Operation,
    pub group: &'a str,
    /// The plural, without the group.
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub user: &'a UserInfo,
    pub dry_run: bool,
    pub read: &'a dyn ObjectReader,
    pub authorizer: Option<&'a dyn Authorizer>,
    pub metrics: &'a Metrics,
    warnings: &'a Mutex<Vec<String>>,
}

impl Request<'_> {
    /// For the client, as a `Warning` header; told once, however often the write is tried.
    fn warn(&self, warning: String) {
        let mut known = self.warnings.lock();
        if !known.contains(&warning) {
            known.push(warning);
        }
    }

    /// Whether this is a write of the main resource.
    fn is(&self, operation: Operation, group: &str, resource: &str) -> bool {
        self.operation == operation && self.is_for(group, resource, "")
    }

    fn is_for(&self, group: &str, resource: &str, subresource: &str) -> bool {
        self.group == group && self.resource == resource && self.subresource == subresource
    }

    /// The node that a pod is bound to, if it is to one.
    ///
    /// # Errors
    /// Forbidden where there is no such node.
    fn node_of(&self, pod: &Object) -> Result<Option<Arc<Object>>, ApiError> {
        let Some(name) = pod["spec"]["nodeName"].as_str().filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let node = self.read.get("nodes.", "", name);
        node.map(Some).ok_or_else(|| self.forbidden(&format!("node \"{name}\" not found")))
    }

    /// What has no name at all is called so, as upstream does.
    fn forbidden(&self, why: &str) -> ApiError {
        let name = if self.name.is_empty() { "Unknown" } else { self.name };
        ApiError::forbidden(self.group, self.resource, name, why)
    }
}

/// One admission plugin. By default it admits everything unchanged.
pub(crate) trait Plugin: Send + Sync {
    /// Upstream's name, as in `--disable-admission-plugins`.
    fn name(&self) -> &'static str;

    /// Whether it is asked about such operations at all.
    fn handles(&self, operation: Operation) -> bool {
        operation != Operation::Connect
    }

    /// Called for creates and updates.
    fn mutate(
        &self,
        _request: &Request,
        _object: &mut Object,
        _old: Option<&Object>,
    ) -> Result<(), ApiError> {
        Ok(())
    }

    /// Called for every operation; `object` is absent for deletions. Called again where the request's authorizer had to
    /// wait for an answer, so whoever asks it must not change anything.
    fn validate(
        &self,
        _request: &Request,
        _object: Option<&Object>,
        _old: Option<&Object>,
    ) -> Result<(), ApiError> {
        Ok(())
    }
}

/// The plugins of this server.
pub struct Chain {
    read: Arc<dyn ObjectReader>,
    plugins: Vec<Timed>,
    mutating: Vec<Box<dyn MutatingStep>>,
    validating: Vec<Box<dyn ValidatingStep>>,
    quota: Option<resource_quota::ResourceQuota>,
    gate: Option<Arc<Gate>>,
    metrics: Arc<Metrics>,
}

impl Chain {
    pub fn new(read: Arc<dyn ObjectReader>, config: &Config) -> Result<Self, PluginError> {
        let plugins = config.plugins()?.into_iter().map(Timed::new).collect();
        let (mutating, validating) = config.steps(&read);
        let quota = config.quota().then(resource_quota::ResourceQuota::default);
        Ok(Self { read, plugins, mutating, validating, quota, gate: None, metrics: Arc::default() })
    }

    /// Refuses what asks for more than the right to write an object ([`rights`]). Every server whose requests are
    /// authorized needs this.
    pub fn guard_escalation(self, gate: Arc<Gate>) -> Self {
        Self { gate: Some(gate), ..self }
    }

    /// Counts in the figures of a server instead of in some of its own. Before the first request.
    pub fn counted_in(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics, ..self }
    }

    fn request<'a>(&'a self, attributes: &'a Attributes<'_>, asking: Option<&'a Asking>) -> Request<'a> {
        Request {
            operation: attributes.operation,
            group: &attributes.resource.group,
            resource: &attributes.resource.plural,
            subresource: attributes.subresource,
            namespace: attributes.namespace,
            name: attributes.name,
            user: attributes.user,
            dry_run: attributes.dry_run,
            read: &*self.read,
            authorizer: asking.map(|asking| asking as &dyn Authorizer),
            metrics: &self.metrics,
            warnings: attributes.warnings,
        }
    }
}

impl Chain {
    /// For one request: who is asked in it.
    fn asking(&self) -> Option<Arc<Asking>> {
        self.gate.as_ref().map(|gate| gate.ask())
    }

    fn write<'a>(&'a self, attributes: &'a Attributes<'_>, asking: Option<&'a Arc<Asking>>) -> Write<'a> {
        Write { attributes, read: &self.read, metrics: &self.metrics, asking }
    }

    fn mutate_by_plugins(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Object,
        old: Option<&Object>,
        asking: Option<&Asking>,
    ) -> Result<(), ApiError> {
        // What has no name yet is called by what its name will begin with, as upstream does.
        let begins = object["metadata"]["generateName"].as_str().unwrap_or_default().to_owned();
        let mut request = self.request(attributes, asking);
        if request.name.is_empty() {
            request.name = &begins;
        }
        let mut timer = Timer::new(&self.metrics, attributes.operation, "admit");
        for Timed { plugin, admit, .. } in &self.plugins {
            if plugin.handles(attributes.operation) {
                timer.plugin(&**plugin, admit, plugin.mutate(&request, object, old))?;
            }
        }
        Ok(())
    }

    async fn mutate_by_steps(
        &self,
        write: &Write<'_>,
        mut object: Option<&mut Object>,
        old: Option<&Object>,
        round: &mut Round,
    ) -> Result<(), ApiError> {
        let mut timer = Timer::new(&self.metrics, write.attributes.operation, "admit");
        for step in &self.mutating {
            let outcome = step.mutate(write, object.as_deref_mut(), old, round).await;
            timer.done(step.name(), outcome)?;
        }
        Ok(())
    }

    /// Deletions are not mutated, but those who mutate are told of them first, as upstream does.
    async fn tell_of_deletion(&self, write: &Write<'_>, old: Option<&Object>) -> Result<(), ApiError> {
        let mut round = Round::default();
        loop {
            self.mutate_by_steps(write, None, old, &mut round).await?;
            if !round.advance() {
                return Ok(());
            }
        }
    }
}

#[async_trait::async_trait]
impl Admission for Chain {
    async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Object,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        service_account::wait_for_default(&self.request(attributes, None), object).await;
        let asking = self.asking();
        let mut round = Round::default();
        loop {
            self.mutate_by_plugins(attributes, object, old, asking.as_deref())?;
            let write = self.write(attributes, asking.as_ref());
            self.mutate_by_steps(&write, Some(object), old, &mut round).await?;
            answered(asking.as_deref())?;
            if !round.advance() {
                return Ok(());
            }
        }
    }

    async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let asking = self.asking();
        let write = self.write(attributes, asking.as_ref());
        if attributes.operation == Operation::Delete {
            self.tell_of_deletion(&write, old).await?;
        }
        let request = self.request(attributes, asking.as_deref());
        write.settle(|| rights::check(attributes, &request, object, old)).await?;
        local_path::check(&request, object, old)?;
        let mut timer = Timer::new(&self.metrics, attributes.operation, "validate");
        for Timed { plugin, validate, .. } in &self.plugins {
            if plugin.handles(attributes.operation) {
                let outcome = write.settle(|| plugin.validate(&request, object, old)).await;
                timer.plugin(&**plugin, validate, outcome)?;
            }
        }
        for step in &self.validating {
            let outcome = step.validate(&write, object, old).await;
            timer.done(step.name(), outcome)?;
        }
        // Behind whoever may take his time: what is kept is looked up as late as can be.
        write.settle(|| releases::check(&request, object, old)).await?;
        answered(asking.as_deref())?;
        match (&self.quota, object) {
            (Some(quota), Some(object)) => {
                let outcome = quota.charge(&request, attributes.store, object, old).await;
                timer.done("ResourceQuota", outcome)
            }
            _ => Ok(()),
        }
    }

    async fn missing_rights(
        &self,
        attributes: &Attributes<'_>,
        new: &Object,
        old: &Object,
    ) -> Result<Vec<FieldError>, ApiError> {
        let asking = self.asking();
        let write = self.write(attributes, asking.as_ref());
        let request = self.request(attributes, asking.as_deref());
        let errors = write.settle(|| rights::of_parts(attributes, &request, new, old)).await;
        answered(asking.as_deref())?;
        Ok(errors)
    }
}

/// Refuses what was decided before everybody who was asked had answered: whoever asks has to wait, and this is for those
/// who forget it.
fn answered(asking: Option<&Asking>) -> Result<(), ApiError> {
    match asking.is_some_and(Asking::is_open) {
        true => Err(ApiError::internal("admission did not wait for an authorization webhook")),
        false => Ok(()),
    }
}

/// The times of one plugin's admissions, by operation; found once, because a write asks every plugin twice.
type Times = [OnceLock<Arc<Histogram>>; 4];

struct Timed {
    plugin: Box<dyn Plugin>,
    admit: Times,
    validate: Times,
}

impl Timed {
    fn new(plugin: Box<dyn Plugin>) -> Self {
        Self { plugin, admit: Times::default(), validate: Times::default() }
    }
}

/// Measures one plugin after the other.
struct Timer<'a> {
    metrics: &'a Metrics,
    at: usize,
    operation: &'static str,
    kind: &'static str,
    since: Instant,
}

impl<'a> Timer<'a> {
    fn new(metrics: &'a Metrics, operation: Operation, kind: &'static str) -> Self {
        Self { metrics, at: operation as usize, operation: operation.name(), kind, since: Instant::now() }
    }

    fn plugin(
        &mut self,
        plugin: &dyn Plugin,
        times: &Times,
        outcome: Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let name = plugin.name();
        if outcome.is_err() {
            return self.done(name, outcome);
        }
        let now = Instant::now();
        let times = times[self.at]
            .get_or_init(|| self.metrics.admission_plugin_times(name, self.operation, self.kind));
        times.observe(now.duration_since(self.since));
        self.since = now;
        Ok(())
    }

    fn done(&mut self, plugin: &'static str, outcome: Result<(), ApiError>) -> Result<(), ApiError> {
        let now = Instant::now();
        let took = now.duration_since(self.since);
        self.metrics.admission_plugin(plugin, self.operation, self.kind, outcome.is_err(), took);
        self.since = now;
        outcome.inspect_err(|error| tracing::debug!(plugin, %error, "refused"))
    }
}

/// The elements of a list field; empty if it is absent.
fn items(value: &serde_json::Value) -> &[serde_json::Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A list field that is made if it is absent; `None` if it is something else.
fn items_mut<'a>(object: &'a mut serde_json::Value, field: &str) -> Option<&'a mut Vec<serde_json::Value>> {
    let map = object.as_object_mut()?;
    let list = map.entry(field).or_insert_with(|| serde_json::Value::Array(Vec::new()));
    if list.is_null() {
        *list = serde_json::Value::Array(Vec::new());
    }
    list.as_array_mut()
}

/// A list field that is there already: indexing for writing would leave a null behind.
fn present_items<'a>(
    object: &'a mut serde_json::Value,
    field: &str,
) -> Option<&'a mut Vec<serde_json::Value>> {
    object.get_mut(field)?.as_array_mut()
}

fn is_mirror(pod: &Object) -> bool {
    pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_access::authz::Chain as AuthzChain;
    use coracle_access::authz::testing::World;
    use coracle_api::catalogue;
    use serde_json::json;

    async fn create(chain: &Chain, plural: &str, group: &str, object: Object) -> Result<Object, ApiError> {
        let user = UserInfo::authenticated("jane", &[]);
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let attributes = Attributes {
            operation: Operation::Create,
            user: &user,
            resource: catalogue::by_plural(group, "v1", plural).expect(plural),
            subresource: "",
            namespace: &namespace,
            name: &name,
            dry_run: false,
            asked: RequestOptions::Nothing,
            warnings: &Mutex::default(),
            store: None,
            versions: None,
        };
        let mut object = object;
        chain.mutate(&attributes, &mut object, None).await?;
        chain.validate(&attributes, Some(&object), None).await?;
        Ok(object)
    }

    #[tokio::test]
    async fn a_pod_passes_all_plugins() {
        let world = World::new();
        world.put("namespaces.", json!({ "metadata": { "name": "a" } }));
        world.put("serviceaccounts.", json!({ "metadata": { "name": "default", "namespace": "a" } }));
        let chain = Chain::new(world, &Config { disabled: Vec::new(), ..Config::default() }).unwrap();
        let pod = create(&chain, "pods", "", testing::pod()).await.unwrap();
        assert_eq!(pod["spec"]["serviceAccountName"], "default");
        assert_eq!(pod["spec"]["priority"], 0);
        assert_eq!(items(&pod["spec"]["tolerations"]).len(), 2);
    }

    #[tokio::test]
    async fn escalation_is_refused_where_the_chain_guards() {
        let world = World::new();
        let rules = json!([{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }]);
        let role = json!({ "metadata": { "name": "all" }, "rules": rules });
        let group = "rbac.authorization.k8s.io";
        let chain = || Chain::new(world.clone(), &Config::default()).unwrap();
        create(&chain(), "clusterroles", group, role.clone()).await.unwrap();
        let guarded = chain().guard_escalation(Gate::new(AuthzChain::new(world.clone(), world.generation())));
        assert_eq!(create(&guarded, "clusterroles", group, role).await.unwrap_err().code, 403);
    }
}
