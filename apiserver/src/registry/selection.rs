//! Selectors of list, watch and deletecollection requests.

use super::{ListOptions, Scope};
use crate::cache::Filter;
use coracle_api::{ApiError, FieldSelector, LabelSelector};
use serde_json::Value;

impl Scope<'_> {
    /// The objects that the request is about, as a filter for the cache.
    pub(super) fn filter(&self, options: &ListOptions) -> Result<Filter, ApiError> {
        let labels = LabelSelector::parse(&options.label_selector)
            .map_err(|e| ApiError::bad_request(format!("unable to parse requirement: {e}")))?;
        let fields = FieldSelector::parse(&options.field_selector)
            .map_err(|e| ApiError::bad_request(e.to_string()))?;
        let mut known = vec!["metadata.name"];
        if self.resource.namespaced {
            known.push("metadata.namespace");
        }
        known.extend(self.strategy.fields(&Value::Null).into_iter().map(|(name, _)| name));
        fields.check_fields(&known).map_err(|e| ApiError::bad_request(e.to_string()))?;
        let namespace = (!self.namespace.is_empty()).then(|| self.namespace.to_owned());
        let name = fields.exact("metadata.name").map(str::to_owned);
        if labels.is_everything() && fields.is_everything() {
            return Ok(Filter { namespace, ..Filter::default() });
        }
        let selects = Box::new(move |object: &crate::cache::CachedObject| {
            labels.matches_with(|key| object.label(key)) && fields.matches(|field| object.field(field))
        });
        Ok(Filter { namespace, name, selects: Some(selects) })
    }
}
