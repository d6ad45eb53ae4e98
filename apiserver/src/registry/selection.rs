//! Selectors of list, watch and deletecollection requests.

use super::selectable::canonical;
use super::{ListOptions, Scope};
use crate::cache::{CachedObject, Filter};
use coracle_api::{ApiError, FieldSelector, LabelSelector};
use serde_json::Value;

impl Scope<'_> {
    /// The objects that the request is about, as a filter for the cache.
    pub(super) fn filter(&self, options: &ListOptions) -> Result<Filter, ApiError> {
        let bad = |error: String| ApiError::bad_request(error);
        let labels = LabelSelector::parse(&options.label_selector).map_err(|e| bad(e.to_string()))?;
        let mut fields = FieldSelector::parse(&options.field_selector).map_err(|e| bad(e.to_string()))?;
        let indexed: Vec<&str> =
            self.strategy.fields(&Value::Null).into_iter().map(|(name, _)| name).collect();
        for requirement in &mut fields.requirements {
            let field =
                canonical(self.resource, self.strategy.custom().map(|c| &**c), &indexed, &requirement.field)
                    .map_err(bad)?;
            if field != requirement.field {
                requirement.field = field.to_owned();
            }
        }
        if let Some(named) = &options.name
            && !fields.is_everything()
            && fields.exact("metadata.name") != Some(named)
        {
            return Err(ApiError::bad_request("fieldSelector metadata.name doesn't match requested name"));
        }
        Ok(self.as_filter(options, labels, fields))
    }

    /// What is exact about name and namespace is looked up; the rest is asked of every object.
    fn as_filter(&self, options: &ListOptions, labels: LabelSelector, mut fields: FieldSelector) -> Filter {
        let mut namespace = (!self.namespace.is_empty()).then(|| self.namespace.to_owned());
        let mut name = options.name.clone();
        fields.requirements.retain(|r| {
            let slot = match r.field.as_str() {
                "metadata.name" => &mut name,
                "metadata.namespace" if self.resource.namespaced => &mut namespace,
                _ => return true,
            };
            if r.negated || r.value.is_empty() || slot.as_deref().is_some_and(|known| known != r.value) {
                return true;
            }
            *slot = Some(r.value.clone());
            false
        });
        // One exact field tells where to look; the selector below asks for it as well.
        let field = fields.requirements.iter().find(|r| !r.negated && !r.value.is_empty());
        let field = field.map(|r| (r.field.clone(), r.value.clone()));
        let selective = !options.label_selector.is_empty() || !options.field_selector.is_empty();
        if labels.is_everything() && fields.is_everything() {
            return Filter { namespace, name, selective, ..Filter::default() };
        }
        let selects = Box::new(move |object: &CachedObject| {
            labels.matches_with(|key| object.label(key)) && fields.matches(|field| object.field(field))
        });
        Filter { namespace, name, field, selective, selects: Some(selects) }
    }
}
