//! The objects that a binding gives to its policy.

use super::compiled::{ParamKind, ParamRef};
use coracle_api::catalogue::split_api_version;
use coracle_api::{Object, Resource};
use coracle_requests::ObjectReader;
use std::sync::Arc;

/// What a policy is run with: nothing, or one object.
pub type Params = Vec<Option<Arc<Object>>>;

impl ParamKind {
    /// The resource that is served under this kind.
    ///
    /// # Errors
    /// When there is none: the policy cannot be configured.
    pub fn resource(&self, read: &dyn ObjectReader) -> Result<Arc<Resource>, String> {
        let (group, version) = split_api_version(&self.api_version).unwrap_or_default();
        read.resource_of_kind(group, version, &self.kind).ok_or_else(|| {
            format!(
                "failed to find resource referenced by paramKind: '{}, Kind={}'",
                self.api_version, self.kind
            )
        })
    }
}

/// The parameters of one binding for a request in `namespace`. Empty means that the binding does not apply, because
/// there are none and it does not mind. Without a kind a reference says nothing, and without a reference the policy is
/// run once, with `params` null.
///
/// # Errors
/// Why the binding cannot be used for this request.
pub async fn collect(
    read: &dyn ObjectReader,
    resource: Option<&Resource>,
    reference: Option<&ParamRef>,
    namespace: &str,
) -> Result<Params, String> {
    let (Some(resource), Some(reference)) = (resource, reference) else { return Ok(vec![None]) };
    if !resource.namespaced && !reference.namespace.is_empty() {
        return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
    }
    let namespace = match (resource.namespaced, reference.namespace.as_str()) {
        (false, _) => "",
        (true, "") if namespace.is_empty() => {
            let why =
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Err(why.to_owned());
        }
        (true, "") => namespace,
        (true, own) => own,
    };
    let found = find(read, resource, reference, namespace)?;
    if found.is_empty() && reference.required {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    let mut params = Params::with_capacity(found.len());
    for object in found {
        params.push(Some(in_version(read, resource, object).await?));
    }
    Ok(params)
}

fn find(
    read: &dyn ObjectReader,
    resource: &Resource,
    reference: &ParamRef,
    namespace: &str,
) -> Result<Vec<Arc<Object>>, String> {
    let key = &resource.storage.key;
    match (&reference.selector, reference.name.as_str()) {
        (None, "") => Err("one of name or selector must be provided".to_owned()),
        (None, name) => Ok(read.get(key, namespace, name).into_iter().collect()),
        (Some(_), name) if !name.is_empty() => {
            Err("paramRef.name and paramRef.selector are mutually exclusive".to_owned())
        }
        (Some(selector), _) => {
            let selector = selector.as_ref().map_err(Clone::clone)?;
            let mut found = read.list(key, namespace);
            found.retain(|object| selector.matches_object(object));
            Ok(found)
        }
    }
}

/// The stored object as the version of `resource` shows it.
async fn in_version(
    read: &dyn ObjectReader,
    resource: &Resource,
    object: Arc<Object>,
) -> Result<Arc<Object>, String> {
    if object["apiVersion"] == resource.api_version().as_str() {
        return Ok(object);
    }
    let object = object.as_ref().clone();
    match read.custom_version(&resource.group, &resource.version, &resource.plural) {
        Some(custom) => custom.convert(object).await.map(Arc::new).map_err(|error| error.message),
        None => {
            let mut object = object;
            coracle_api::convert::from_storage(resource, &mut object);
            Ok(Arc::new(object))
        }
    }
}
