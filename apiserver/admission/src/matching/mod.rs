//! Whom a request concerns: rules, selectors and match policy of webhooks and of policies.
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-rules>
//!
//! [`Matcher`] is made once from a configuration and asked for every request.

mod rules;
mod selectors;
#[cfg(test)]
mod tests;

pub use rules::Rules;

use super::Attributes;
use coracle_api::selector::SelectorError;
use coracle_api::{ApiError, LabelSelector, Object, Resource};
use coracle_requests::ObjectReader;
use serde_json::Value;
use std::sync::Arc;

/// Configurations that no webhook and no policy is asked about, so that nobody locks himself out.
const EXEMPT: [&str; 6] = [
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfigurations",
];

/// Whether a request is about the configuration of admission itself.
pub fn is_exempt(attributes: &Attributes<'_>) -> bool {
    attributes.resource.group == "admissionregistration.k8s.io"
        && EXEMPT.contains(&&*attributes.resource.plural)
}

/// Questions that no policy is asked about: a cluster that cannot ask them would not work. Webhooks see them.
const QUESTIONS: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Whether policies are not asked about a request.
pub fn is_exempt_from_policies(attributes: &Attributes<'_>) -> bool {
    let resource = (&*attributes.resource.group, &*attributes.resource.plural);
    is_exempt(attributes) || QUESTIONS.contains(&resource)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchPolicy {
    /// Only requests in the very version that a rule names.
    Exact,
    /// A request in another version of the same resource is converted.
    Equivalent,
}

/// What is compared with a request.
#[derive(Clone, Debug)]
pub struct Matcher {
    /// `None` matches everything: a binding without rules.
    rules: Option<Rules>,
    excluded: Rules,
    policy: MatchPolicy,
    namespaces: LabelSelector,
    objects: LabelSelector,
}

impl Matcher {
    /// Of one entry of `webhooks`.
    ///
    /// # Errors
    /// A selector that validation has let through in an older version of this server.
    pub fn of_webhook(hook: &Value) -> Result<Self, SelectorError> {
        Ok(Self { rules: Some(Rules::new(&hook["rules"])), ..Self::selecting(hook)? })
    }

    /// Of `matchConstraints` of a policy, or of `matchResources` of a binding; an absent one matches everything.
    ///
    /// # Errors
    /// As [`of_webhook`](Self::of_webhook).
    pub fn of_resources(resources: &Value) -> Result<Self, SelectorError> {
        let rules = Rules::new(&resources["resourceRules"]);
        Ok(Self {
            rules: (!rules.is_empty()).then_some(rules),
            excluded: Rules::new(&resources["excludeResourceRules"]),
            ..Self::selecting(resources)?
        })
    }

    fn selecting(holder: &Value) -> Result<Self, SelectorError> {
        let selector = |field: &str| match &holder[field] {
            Value::Null => Ok(LabelSelector::everything()),
            selector => LabelSelector::from_object(selector),
        };
        let policy =
            if holder["matchPolicy"] == "Exact" { MatchPolicy::Exact } else { MatchPolicy::Equivalent };
        Ok(Self {
            rules: None,
            excluded: Rules::default(),
            policy,
            namespaces: selector("namespaceSelector")?,
            objects: selector("objectSelector")?,
        })
    }

    /// The resource in whose version the request is to be shown; `None` if it does not concern this one. `object` and
    /// `old` are in any form: only their labels are looked at.
    ///
    /// # Errors
    /// 404 for a namespace that does not exist and whose labels decide.
    pub fn matches(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
        old: Option<&Object>,
        read: &dyn ObjectReader,
    ) -> Result<Option<Arc<Resource>>, ApiError> {
        let found = match &self.rules {
            None => Some(attributes.resource.clone()),
            Some(rules) => self.find(rules, attributes),
        };
        let Some(found) = found.filter(|_| selectors::objects(&self.objects, object, old)) else {
            return Ok(None);
        };
        if self.find(&self.excluded, attributes).is_some() {
            return Ok(None);
        }
        // Last, because its error says nothing to a request that the rules do not concern.
        let selected = selectors::namespace(&self.namespaces, attributes, object, read)?;
        Ok(selected.then_some(found))
    }

    fn find(&self, rules: &Rules, attributes: &Attributes<'_>) -> Option<Arc<Resource>> {
        if rules.is_empty() {
            return None;
        }
        if rules.find(attributes, std::slice::from_ref(attributes.resource)).is_some() {
            return Some(attributes.resource.clone());
        }
        // Most rules fail by group or operation in every version, so the other versions are looked for last.
        if self.policy == MatchPolicy::Exact || !rules.could_match(attributes) {
            return None;
        }
        let (own, subresource) = (attributes.resource, attributes.subresource);
        let mut others = attributes.equivalents();
        others.retain(|other| {
            let is_own = other.group == own.group && other.version == own.version;
            !is_own && (subresource.is_empty() || other.subresource(subresource).is_some())
        });
        rules.find(attributes, &others)
    }
}
