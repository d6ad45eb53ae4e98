//! Who owns which field: `metadata.managedFields` on every write.

use super::metadata::{of, time_text};
use super::{Scope, WriteOptions};
use coracle_api::managed::{self, Request, Versions};
use coracle_api::schema::{self, TypeRef};
use coracle_api::{ApiError, Object, Resource, UserInfo, catalogue, convert};
use coracle_resources::custom::{Memo, OtherVersions};

/// Upstream's limit of a manager's name, in bytes.
const MANAGER_BYTES: usize = 128;

/// What a write does to the owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owners {
    /// What changes goes to the request's field manager.
    Follow,
    /// The server's own doing: they stay as they were.
    Keep,
    /// The new object has them already.
    Given,
}

/// The manager of a request: the one it names, else the first part of its user agent. Components inside this process
/// send none and are known by their identity.
pub fn manager_name(asked: &str, user_agent: &str, user: &UserInfo) -> String {
    if !asked.is_empty() {
        return asked.to_owned();
    }
    if user_agent.is_empty() {
        return component(&user.name).to_owned();
    }
    let mut name = String::new();
    for c in user_agent.split('/').next().unwrap_or_default().chars().filter(|c| !c.is_control()) {
        if name.len() + c.len_utf8() > MANAGER_BYTES {
            break;
        }
        name.push(c);
    }
    name
}

fn component(user: &str) -> &str {
    match user.strip_prefix("system:").unwrap_or_default() {
        "kube-scheduler" => "kube-scheduler",
        "kube-controller-manager" => "kube-controller-manager",
        "kube-proxy" => "kube-proxy",
        "apiserver" => "kube-apiserver",
        "coracle:simulated-nodes" => "kubelet",
        other if other.starts_with("node:") => "kubelet",
        other if other.starts_with("serviceaccount:kube-system:") => "kube-controller-manager",
        _ => "",
    }
}

/// The other versions of a resource, through the stored form.
pub(super) struct Served<'a>(pub &'a Resource);

impl Served<'_> {
    fn find(&self, version: &str) -> Option<&'static Resource> {
        let same = |r: &&std::sync::Arc<Resource>| r.storage.key == self.0.storage.key;
        catalogue::catalogue().iter().filter(same).find(|r| r.api_version() == version).map(|r| &**r)
    }

    /// The versions whose owners may be met in an object.
    pub fn versions(&self) -> Vec<String> {
        let same = |r: &&std::sync::Arc<Resource>| r.storage.key == self.0.storage.key;
        catalogue::catalogue().iter().filter(same).map(|r| r.api_version()).collect()
    }
}

impl Versions for Served<'_> {
    fn convert(&self, object: &Object, from: &str, to: &str) -> Option<Object> {
        let (from, to) = (self.find(from)?, self.find(to)?);
        let mut object = object.clone();
        convert::to_storage(from, &mut object);
        convert::from_storage(to, &mut object);
        Some(object)
    }

    fn schema(&self, version: &str) -> Option<TypeRef<'_>> {
        let resource = self.find(version)?;
        schema::root(&resource.group, &resource.version, &resource.kind)
    }
}

impl Scope<'_> {
    /// Calls `work` with what field management has to know of this request; `None` for kinds without a schema.
    /// What `memo` misses in the end is to be completed, and then asked for once more.
    pub(super) fn managing<T>(
        &self,
        manager: &str,
        memo: &Memo,
        work: impl FnOnce(&Request<'_>) -> T,
    ) -> Option<T> {
        let resource = &**self.resource;
        let (built_in, custom);
        let (ty, versions): (TypeRef<'_>, &dyn Versions) = match self.strategy.custom() {
            None => {
                built_in = Served(resource);
                (schema::root(&resource.group, &resource.version, &resource.kind)?, &built_in)
            }
            Some(of) => {
                custom = OtherVersions { custom: of, memo };
                (TypeRef::dynamic(of.schema().ty()), &custom)
            }
        };
        let request = Request {
            manager,
            subresource: self.subresource,
            api_version: &resource.api_version(),
            ty,
            versions,
            reset: self.strategy.reset_fields(resource, self.subresource),
            now: &time_text(self.now),
        };
        Some(work(&request))
    }

    /// Writes the owners into `new`, which replaces `old` or is created; both are in the form that writes work on.
    pub(super) async fn own(
        &self,
        owners: Owners,
        options: &WriteOptions,
        new: &mut Object,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let list = match owners {
            Owners::Given => return Ok(()),
            Owners::Keep => {
                let kept = old.and_then(|old| old["metadata"].get("managedFields"));
                if new["metadata"].get("managedFields") == kept {
                    return Ok(());
                }
                kept.cloned()
            }
            Owners::Follow => {
                let memo = Memo::default();
                loop {
                    let list = self.follow(&options.field_manager, &memo, new, old);
                    if !self.complete(&memo).await? {
                        break list;
                    }
                }
            }
        };
        match list {
            Some(list) => of(new).insert("managedFields".into(), list),
            None => of(new).remove("managedFields"),
        };
        Ok(())
    }

    fn follow(&self, manager: &str, memo: &Memo, new: &Object, old: Option<&Object>) -> Option<Object> {
        if !self.is_converted() {
            return self.managing(manager, memo, |request| managed::update(request, old, new)).flatten();
        }
        let (new, old) = (self.to_served(new.clone()), old.map(|old| self.to_served(old.clone())));
        self.managing(manager, memo, |request| managed::update(request, old.as_ref(), &new)).flatten()
    }

    /// Fetches what was missed; true if there was anything, so that the work is to be done once more.
    ///
    /// # Errors
    /// A conversion webhook's.
    pub(super) async fn complete(&self, memo: &Memo) -> Result<bool, ApiError> {
        match self.strategy.custom() {
            Some(custom) if !memo.is_complete() => memo.complete(custom).await.map(|()| true),
            _ => Ok(false),
        }
    }

    /// The versions whose owners may be met in an object.
    pub(super) fn all_versions(&self) -> Vec<String> {
        match self.strategy.custom() {
            None => Served(self.resource).versions(),
            Some(custom) => {
                let group = &custom.definition.group;
                custom.definition.versions.iter().map(|v| format!("{group}/{}", v.name)).collect()
            }
        }
    }

    /// A write that would change nothing but times in managedFields becomes one that changes nothing.
    pub(super) fn forget_noise(&self, new: &mut Object, old: &Object) {
        if managed::same_but_times(new, old)
            && let Some(list) = old["metadata"].get("managedFields")
        {
            of(new).insert("managedFields".into(), list.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_are_named_by_option_agent_or_identity() {
        let user = |name: &str| UserInfo::authenticated(name, &[]);
        let admin = user("admin");
        assert_eq!(manager_name("me", "kubectl/v1.32", &admin), "me");
        assert_eq!(manager_name("", "kubectl/v1.32 (linux)", &admin), "kubectl");
        assert_eq!(manager_name("", "a\u{7}b/1", &admin), "ab");
        assert_eq!(manager_name("", &"x".repeat(200), &admin).len(), 128);
        assert_eq!(manager_name("", "", &user("system:node:n1")), "kubelet");
        assert_eq!(manager_name("", "", &user("system:coracle:simulated-nodes")), "kubelet");
        assert_eq!(manager_name("", "", &user("system:kube-scheduler")), "kube-scheduler");
        let controller = user("system:serviceaccount:kube-system:deployment-controller");
        assert_eq!(manager_name("", "", &controller), "kube-controller-manager");
        assert_eq!(manager_name("", "", &admin), "");
    }

    #[test]
    fn versions_of_autoscalers_meet_in_storage() {
        let v2 = catalogue::by_plural("autoscaling", "v2", "horizontalpodautoscalers").unwrap();
        let served = Served(v2);
        assert_eq!(served.versions(), ["autoscaling/v2", "autoscaling/v1"]);
        let object = serde_json::json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}});
        let there = served.convert(&object, "autoscaling/v1", "autoscaling/v2").unwrap();
        assert_eq!(there["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50);
        assert_eq!(served.convert(&object, "autoscaling/v1", "autoscaling/v9"), None);
    }
}
