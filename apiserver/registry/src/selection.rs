//! Selectors of list, watch and deletecollection requests.

use super::{ListOptions, Scope, Selectors};
use coracle_api::{ApiError, FieldSelector, LabelSelector, Object};
use coracle_resources::cache::{CachedObject, Filter, Snapshot};
use coracle_resources::custom::text_at;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;

const OF_METADATA: &str = "metadata.";

/// Whether an object, as it is shown, has what a field selector asks for.
pub fn matches(fields: &FieldSelector, object: &Object) -> bool {
    let texts: Vec<(&str, String)> =
        fields.requirements.iter().map(|r| (r.field.as_str(), text_at(object, &r.field))).collect();
    fields.matches(|field| texts.iter().find(|(name, _)| *name == field).map(|(_, text)| text.as_str()))
}

impl Scope<'_> {
    /// The objects that the request is about, as a filter for the cache.
    pub(super) fn filter(&self, options: &ListOptions) -> Result<Filter, ApiError> {
        let Selectors { labels, mut fields, .. } = options.selectors.as_deref().cloned().unwrap_or_default();
        let indexed: Vec<&str> =
            self.strategy.fields(&Value::Null).into_iter().map(|(name, _)| name).collect();
        for requirement in &mut fields.requirements {
            let field = self.canonical(&indexed, &requirement.field).map_err(ApiError::bad_request)?;
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
        if self.is_foreign() {
            fields.requirements.retain(|requirement| requirement.field.starts_with(OF_METADATA));
        }
        Ok(self.as_filter(options, labels, fields))
    }

    /// The name under which objects are indexed, for a field of a selector.
    fn canonical<'f>(&self, indexed: &[&'static str], field: &'f str) -> Result<&'f str, String> {
        let Some(custom) = self.strategy.custom() else {
            let labels = self.strategy.field_labels(&self.resource.group);
            return labels.canonical(self.resource, indexed, field);
        };
        let known = field == "metadata.name"
            || (field == "metadata.namespace" && self.resource.namespaced)
            || custom.selects_by(field);
        if known { Ok(field) } else { Err(format!("field label not supported: {field}")) }
    }

    fn is_foreign(&self) -> bool {
        self.strategy.custom().is_some_and(|custom| custom.is_foreign())
    }

    /// What the selector asks of fields that are known only after a webhook has converted the object; the filter does not
    /// ask for them.
    pub fn foreign_fields(&self, options: &ListOptions) -> Option<FieldSelector> {
        let selectors = options.selectors.as_ref().filter(|_| self.is_foreign())?;
        let mut fields = selectors.fields.clone();
        fields.requirements.retain(|requirement| !requirement.field.starts_with(OF_METADATA));
        (!fields.is_everything()).then_some(fields)
    }

    /// The filter, which also knows which objects match what is known only after a conversion.
    pub(super) async fn with_foreign(
        &self,
        filter: Filter,
        options: &ListOptions,
        snapshot: &Snapshot,
    ) -> Result<Filter, ApiError> {
        let (Some(fields), Some(custom)) = (self.foreign_fields(options), self.strategy.custom()) else {
            return Ok(filter);
        };
        let candidates = self.candidates(snapshot, &filter, None);
        let found: Vec<Arc<CachedObject>> =
            candidates.filter(|object| filter.matches(object)).cloned().collect();
        let shown = custom.served(found.iter().map(|object| (&**object, object.revision))).await?;
        let matching: HashSet<Arc<str>> = found
            .iter()
            .zip(&shown)
            .filter(|(_, shown)| matches(&fields, shown))
            .map(|(object, _)| object.key.clone())
            .collect();
        let selects = Box::new(move |object: &CachedObject| matching.contains(&object.key));
        Ok(Filter { selects: Some(selects), ..filter })
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
        let selective = options.selectors.is_some();
        if labels.is_everything() && fields.is_everything() {
            return Filter { namespace, name, selective, ..Filter::default() };
        }
        let selects = Box::new(move |object: &CachedObject| {
            labels.matches_with(|key| object.label(key)) && fields.matches(|field| object.field(field))
        });
        Filter { namespace, name, field, selective, selects: Some(selects) }
    }
}
