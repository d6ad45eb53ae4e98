//! What a request wants, as authorizers see it.

use coracle_api::go::quoted;
use coracle_api::{ApiError, FieldSelector, UserInfo};

/// Mirrors upstream's `authorizer.Attributes`. Fields that do not apply are empty.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    pub user: &'a UserInfo,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `proxy`, or for paths the HTTP
    /// method in lower case.
    pub verb: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    /// Plural without the group; empty for a request that is for no resource. Questions within a request may ask about a
    /// resource without a name.
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    /// The field selector of a list, watch or deletecollection, as it is written; empty too where it could not be read,
    /// because then everything may be meant (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/#using-field-and-label-selectors>).
    pub field_selector: &'a str,
    /// The label selector, likewise.
    pub label_selector: &'a str,
    /// The URL's path, of a request that is for no resource.
    pub path: Option<&'a str>,
}

impl<'a> Attributes<'a> {
    /// For a path that is no resource's, such as `/version`.
    pub fn path(user: &'a UserInfo, verb: &'a str, path: &'a str) -> Self {
        Self { path: Some(path), ..Self::empty(user, verb) }
    }

    /// For a resource; add name, subresource and selector with struct update syntax.
    pub fn resource(
        user: &'a UserInfo,
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        namespace: &'a str,
    ) -> Self {
        Self { group, resource, namespace, ..Self::empty(user, verb) }
    }

    fn empty(user: &'a UserInfo, verb: &'a str) -> Self {
        Self {
            user,
            verb,
            group: "",
            version: "",
            resource: "",
            subresource: "",
            namespace: "",
            name: "",
            field_selector: "",
            label_selector: "",
            path: None,
        }
    }

    pub fn is_resource(&self) -> bool {
        self.path.is_none()
    }

    pub fn is_read_only(&self) -> bool {
        matches!(self.verb, "get" | "list" | "watch")
    }

    /// `pods` or `pods/log`
    pub fn full_resource(&self) -> String {
        match self.subresource {
            "" => self.resource.to_owned(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }

    /// Whether the field selector demands `field` to be `value` (among other terms).
    pub fn selects(&self, field: &str, value: &str) -> bool {
        self.selected(field).is_some_and(|selected| selected == value)
    }

    /// The value that the field selector demands for `field`.
    pub fn selected(&self, field: &str) -> Option<String> {
        let selector = FieldSelector::parse(self.field_selector).ok()?;
        selector.exact(field).map(str::to_owned)
    }

    /// The 403 in upstream's words.
    pub fn forbidden(&self, reason: &str) -> ApiError {
        let mut why = self.denial();
        if !reason.is_empty() {
            why = format!("{why}: {reason}");
        }
        let error = ApiError::forbidden(self.group, self.resource, self.name, &why);
        if self.is_resource() { error } else { error.with_details(serde_json::json!({})) }
    }

    fn denial(&self) -> String {
        let user = quoted(&self.user.name);
        if let Some(path) = self.path {
            return format!("User {user} cannot {} path {}", self.verb, quoted(path));
        }
        let scope = match self.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {}", quoted(namespace)),
        };
        let (resource, group) = (quoted(&self.full_resource()), quoted(self.group));
        format!("User {user} cannot {} resource {resource} in API group {group} {scope}", self.verb)
    }
}
