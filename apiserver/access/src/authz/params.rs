//! Nobody may let a policy read for them what they may not read themselves: whoever writes a `paramKind` or a `paramRef`
//! needs the right to read what it names.

use super::{Attributes, Authorizer, MASTERS, require};
use coracle_api::catalogue::split_api_version;
use coracle_api::{FieldError, Object, UserInfo};
use coracle_requests::ObjectReader;
use coracle_requests::value::{at, has, str_at};
use serde_json::Value;

/// What the checks of this module read.
#[derive(Clone, Copy)]
pub struct ReferenceCheck<'a> {
    pub user: &'a UserInfo,
    pub authorizer: &'a dyn Authorizer,
    pub read: &'a dyn ObjectReader,
}

/// The resource that parameters are of, as far as it can be told: where it cannot, everything is asked for.
struct Parameters {
    group: String,
    version: String,
    resource: String,
    /// Why it cannot be told.
    unknown: Option<String>,
}

impl Parameters {
    fn everything(unknown: Option<String>) -> Self {
        let all = || "*".to_owned();
        Self { group: all(), version: all(), resource: all(), unknown }
    }

    fn of(kind: &Value, read: &dyn ObjectReader) -> Self {
        let (api_version, name) = (str_at(kind, "apiVersion"), str_at(kind, "kind"));
        let shown = format!("&{{{api_version} {name}}}");
        let Some((group, version)) = split_api_version(api_version) else {
            return Self::everything(Some(format!("unable to parse paramKind {shown}")));
        };
        let found = read.resource_of_kind(group, version, name);
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            unknown: found.is_none().then(|| format!("unable to resolve paramKind {shown}")),
            resource: found.map_or_else(|| "*".to_owned(), |resource| resource.plural.to_string()),
        }
    }
}

/// The registry calls this for every create and update of policies and their bindings that is valid so far. `resource` is
/// the plural; other resources pass. `old` is the present object of an update.
///
/// # Errors
/// The field whose writer may not read what it names.
pub fn check(
    resource: &str,
    object: &Object,
    old: Option<&Object>,
    asked: ReferenceCheck<'_>,
) -> Result<(), FieldError> {
    if asked.user.in_group(MASTERS) {
        return Ok(());
    }
    let same = |field: &str| old.is_some_and(|old| at(old, field) == at(object, field));
    let named = |field: &str| has(object, field);
    let policies = match resource {
        "validatingadmissionpolicies" | "mutatingadmissionpolicies" => {
            let asks = named("spec.paramKind") && !same("spec.paramKind");
            return if asks { asked.kind(at(object, "spec.paramKind")) } else { Ok(()) };
        }
        "validatingadmissionpolicybindings" => "validatingadmissionpolicies",
        "mutatingadmissionpolicybindings" => "mutatingadmissionpolicies",
        _ => return Ok(()),
    };
    let asks = named("spec.paramRef") && !(same("spec.paramRef") && same("spec.policyName"));
    if asks { asked.reference(object, policies) } else { Ok(()) }
}

impl ReferenceCheck<'_> {
    fn may(&self, verb: &str, parameters: &Parameters, namespace: &str, name: &str) -> bool {
        let Parameters { group, version, resource, .. } = parameters;
        let attributes =
            Attributes { name, version, ..Attributes::resource(self.user, verb, group, resource, namespace) };
        // Why not is not told, as upstream.
        require(self.authorizer, &attributes).is_ok()
    }

    fn kind(&self, kind: &Value) -> Result<(), FieldError> {
        if self.may("get", &Parameters::of(kind, self.read), "*", "*") {
            return Ok(());
        }
        let why = format!(
            "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
            shown(self.user),
            str_at(kind, "kind"),
            str_at(kind, "apiVersion"),
        );
        Err(FieldError::forbidden("spec.paramKind", &why))
    }

    fn reference(&self, binding: &Object, policies: &str) -> Result<(), FieldError> {
        let (policy_name, reference) = (str_at(binding, "spec.policyName"), at(binding, "spec.paramRef"));
        let policy = self.read.get(&format!("{policies}.admissionregistration.k8s.io"), "", policy_name);
        let parameters = match policy.as_deref().map(|policy| at(policy, "spec.paramKind")) {
            None => Parameters::everything(Some(format!("unable to get policy {policy_name}"))),
            Some(Value::Null) => Parameters::everything(None),
            Some(kind) => Parameters::of(kind, self.read),
        };
        let name = str_at(reference, "name");
        let verb = if name.is_empty() { "list" } else { "get" };
        if self.may(verb, &parameters, str_at(reference, "namespace"), name) {
            return Ok(());
        }
        let user = shown(self.user);
        let why = match parameters.unknown {
            Some(unknown) => format!(
                "{unknown} to determine minimum required permissions and user {user} does not have \"{verb}\" permission \
                 for all groups, versions and resources"
            ),
            None => format!(
                "user {user} does not have \"{verb}\" permission on the object referenced by paramRef"
            ),
        };
        Err(FieldError::forbidden("spec.paramRef", &why))
    }
}

/// As Go prints upstream's struct.
fn shown(user: &UserInfo) -> String {
    let extra: Vec<String> =
        user.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" "))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, user.groups.join(" "), extra.join(" "))
}
