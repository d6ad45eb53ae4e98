//! Admission: what a write must be, and what it becomes, before it is stored
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/>).
//!
//! [`Chain`] holds upstream's default plugins in upstream's order, one file each. Plugins are synchronous and decide from
//! cached state.

mod default_ingress_class;
mod default_storage_class;
mod default_toleration_seconds;
mod limit_ranger;
mod namespace_lifecycle;
mod node_restriction;
mod pod_security;
mod priority;
mod resource_quota;
mod runtime_class;
mod service_account;
mod storage_object_in_use;
mod taint_nodes;

#[cfg(test)]
mod testing;

pub use crate::registry::{Admission, Attributes, Operation};
pub use node_restriction::check_token as check_node_token;

use crate::authz::{Authorizer, escalation};
use crate::strategy::Reader;
use coracle_api::{ApiError, Object, UserInfo};
use std::sync::Arc;

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
    pub read: &'a dyn Reader,
}

impl Request<'_> {
    /// Whether this is a write of the main resource.
    fn is(&self, operation: Operation, group: &str, resource: &str) -> bool {
        self.operation == operation && self.is_for(group, resource, "")
    }

    fn is_for(&self, group: &str, resource: &str, subresource: &str) -> bool {
        self.group == group && self.resource == resource && self.subresource == subresource
    }

    fn forbidden(&self, why: &str) -> ApiError {
        ApiError::forbidden(self.group, self.resource, self.name, why)
    }
}

/// One admission plugin. By default it admits everything unchanged.
pub(crate) trait Plugin: Send + Sync {
    /// Upstream's name, as in `--disable-admission-plugins`.
    fn name(&self) -> &'static str;

    /// Called for creates and updates.
    fn mutate(
        &self,
        _request: &Request,
        _object: &mut Object,
        _old: Option<&Object>,
    ) -> Result<(), ApiError> {
        Ok(())
    }

    /// Called for every operation; `object` is absent for deletions.
    fn validate(
        &self,
        _request: &Request,
        _object: Option<&Object>,
        _old: Option<&Object>,
    ) -> Result<(), ApiError> {
        Ok(())
    }
}

/// Upstream's order: quota last, because it must only count what everybody else let through.
const ALL: &[&dyn Plugin] = &[
    &namespace_lifecycle::NamespaceLifecycle,
    &limit_ranger::LimitRanger,
    &service_account::ServiceAccount,
    &node_restriction::NodeRestriction,
    &taint_nodes::TaintNodesByCondition,
    &pod_security::PodSecurity,
    &priority::Priority,
    &default_toleration_seconds::DefaultTolerationSeconds,
    &storage_object_in_use::StorageObjectInUseProtection,
    &default_storage_class::DefaultStorageClass,
    &runtime_class::RuntimeClass,
    &default_ingress_class::DefaultIngressClass,
    &resource_quota::ResourceQuota,
];

/// Plugins that hand work to a controller. Without that controller they would block for ever (a node never loses its
/// taint, a claim never its finalizer), so whoever starts the controller takes the name out of [`Config::disabled`].
pub const NEED_CONTROLLERS: [&str; 2] = [NEEDS_NODE_LIFECYCLE, NEEDS_STORAGE_PROTECTION];

/// Its taint is taken back by a node life-cycle controller.
pub const NEEDS_NODE_LIFECYCLE: &str = "TaintNodesByCondition";

/// Its finalizers are taken back by the storage component.
pub const NEEDS_STORAGE_PROTECTION: &str = "StorageObjectInUseProtection";

/// Which plugins run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Upstream's names of plugins.
    pub disabled: Vec<String>,
}

impl Default for Config {
    /// All but [`NEED_CONTROLLERS`].
    fn default() -> Self {
        Self { disabled: NEED_CONTROLLERS.map(str::to_owned).to_vec() }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("unknown admission plugin {0:?}")]
pub struct UnknownPlugin(pub String);

/// The plugins of this server.
pub struct Chain {
    read: Arc<dyn Reader>,
    plugins: Vec<&'static dyn Plugin>,
    authorizer: Option<Arc<dyn Authorizer>>,
}

impl Chain {
    pub fn new(read: Arc<dyn Reader>, config: &Config) -> Result<Self, UnknownPlugin> {
        let unknown = config.disabled.iter().find(|name| !ALL.iter().any(|p| p.name() == *name));
        if let Some(name) = unknown {
            return Err(UnknownPlugin(name.clone()));
        }
        let enabled = |p: &&&dyn Plugin| !config.disabled.iter().any(|name| name == p.name());
        Ok(Self { read, plugins: ALL.iter().filter(enabled).copied().collect(), authorizer: None })
    }

    /// Refuses roles and bindings by which their writer would grant more than they have
    /// ([`escalation`]). Every server whose requests are authorized needs this.
    pub fn guard_escalation(self, authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer: Some(authorizer), ..self }
    }

    fn check_escalation(
        &self,
        request: &Request,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let (Some(authorizer), Some(object)) = (&self.authorizer, object) else { return Ok(()) };
        let writes = matches!(request.operation, Operation::Create | Operation::Update);
        if !writes || request.group != "rbac.authorization.k8s.io" {
            return Ok(());
        }
        escalation::check(request.resource, object, old, request.user, &**authorizer, request.read)
    }

    fn request<'a>(&'a self, attributes: &'a Attributes<'_>) -> Request<'a> {
        Request {
            operation: attributes.operation,
            group: &attributes.resource.group,
            resource: &attributes.resource.plural,
            subresource: attributes.subresource,
            namespace: attributes.namespace,
            name: attributes.name,
            user: attributes.user,
            read: &*self.read,
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
        service_account::wait_for_default(&self.request(attributes), object).await;
        let request = self.request(attributes);
        self.plugins.iter().try_for_each(|plugin| plugin.mutate(&request, object, old))
    }

    async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let request = self.request(attributes);
        self.check_escalation(&request, object, old)?;
        self.plugins.iter().try_for_each(|plugin| plugin.validate(&request, object, old))
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
    use crate::authz::Chain as AuthzChain;
    use crate::authz::testing::World;
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
        };
        let mut object = object;
        chain.mutate(&attributes, &mut object, None).await?;
        chain.validate(&attributes, Some(&object), None).await?;
        Ok(object)
    }

    #[test]
    fn plugins_can_be_disabled_by_name() {
        let world = World::new();
        let plugins = |disabled: &[&str]| {
            let config = Config { disabled: disabled.iter().map(|n| (*n).to_owned()).collect() };
            Chain::new(world.clone(), &config).map(|chain| chain.plugins.len())
        };
        assert_eq!(plugins(&[]).unwrap(), ALL.len());
        assert_eq!(plugins(&["Priority", "PodSecurity"]).unwrap(), ALL.len() - 2);
        assert_eq!(
            plugins(&["Prioritise"]).unwrap_err().to_string(),
            "unknown admission plugin \"Prioritise\""
        );
        let default = Chain::new(world.clone(), &Config::default()).unwrap();
        assert!(!default.plugins.iter().any(|p| NEED_CONTROLLERS.contains(&p.name())));
    }

    #[tokio::test]
    async fn a_pod_passes_all_plugins() {
        let world = World::new();
        world.put("namespaces.", json!({ "metadata": { "name": "a" } }));
        world.put("serviceaccounts.", json!({ "metadata": { "name": "default", "namespace": "a" } }));
        let chain = Chain::new(world, &Config { disabled: Vec::new() }).unwrap();
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
        let guarded = chain().guard_escalation(Arc::new(AuthzChain::new(world.clone(), world.generation())));
        assert_eq!(create(&guarded, "clusterroles", group, role).await.unwrap_err().code, 403);
    }
}
