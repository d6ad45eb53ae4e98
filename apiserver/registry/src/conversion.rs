//! The forms of an object that admission by webhooks and policies works on.

use super::Scope;
use super::VersionConverter;
use super::metadata::of;
use coracle_api::catalogue::{catalogue, split_api_version};
use coracle_api::decode::conform;
use coracle_api::{ApiError, Object, Resource, convert, schema};
use coracle_requests::stream_options::{OptionType, stream_options};
use coracle_resources::custom::CustomResource;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

impl Scope<'_> {
    /// Whether it is an object of the resource, and not the body of a subresource or the options of a stream.
    fn is_own(&self, object: &Object) -> bool {
        object["kind"] == *self.resource.kind
    }

    fn is_scale(&self, object: &Object) -> bool {
        self.subresource == "scale" && self.is_own(object)
    }

    fn custom_in(&self, version: &Resource) -> Option<Arc<CustomResource>> {
        self.strategy.custom()?;
        self.registry.catalogue.custom(&version.group, &version.version, &version.plural)
    }

    /// An object in the form of `from` as a request of that version would have brought it, without defaults.
    fn decoded(&self, object: &mut Object, from: &Resource) -> Result<(), ApiError> {
        if let Some(custom) = self.custom_in(from).filter(|_| self.is_own(object)) {
            return custom.coerce(object).map(|_| ()).map_err(ApiError::internal);
        }
        if let Some(fields) = stream_options(text(object, "kind")) {
            return conform_options(object, fields);
        }
        let (group, version) = split_api_version(text(object, "apiVersion")).unwrap_or_default();
        let Some(ty) = schema::root(group, version, text(object, "kind")) else {
            let why =
                format!("no kind {:?} in version {:?}", text(object, "kind"), text(object, "apiVersion"));
            return Err(ApiError::internal(why));
        };
        conform(object, ty).map(|_| ()).map_err(ApiError::internal)
    }
}

fn text<'a>(object: &'a Object, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

/// Drops what is none of these fields, as decoding does.
fn conform_options(object: &mut Object, fields: &[(&str, OptionType)]) -> Result<(), ApiError> {
    let Some(own) = object.as_object_mut() else { return Ok(()) };
    own.retain(|name, value| {
        matches!(&**name, "kind" | "apiVersion")
            || fields.iter().any(|(field, _)| field == name) && !value.is_null()
    });
    for (name, of) in fields {
        let all =
            |list: &Value, good: fn(&Value) -> bool| list.as_array().is_some_and(|l| l.iter().all(good));
        let good = own.get(*name).is_none_or(|value| match of {
            OptionType::Flag => value.is_boolean(),
            OptionType::Text | OptionType::Path => value.is_string(),
            OptionType::Texts => all(value, Value::is_string),
            OptionType::Ports => all(value, |port| port.as_i64().is_some_and(|p| i32::try_from(p).is_ok())),
        });
        if !good {
            return Err(ApiError::internal(format!("options of a stream with an odd {name:?}")));
        }
    }
    Ok(())
}

/// A change may not turn an object into one of another kind.
fn check_kind(changed: &Object, version: &str, kind: &str) -> Result<(), ApiError> {
    if text(changed, "kind") == kind && text(changed, "apiVersion") == version {
        return Ok(());
    }
    let (other, of) = (text(changed, "kind"), text(changed, "apiVersion"));
    Err(ApiError::internal(format!("{version}, Kind={kind} was turned into {of}, Kind={other}")))
}

#[async_trait::async_trait]
impl VersionConverter for Scope<'_> {
    fn equivalents(&self) -> Vec<Arc<Resource>> {
        if self.strategy.custom().is_some() {
            return self.registry.catalogue.versions(&self.resource.group, &self.resource.plural);
        }
        let same = |r: &&Arc<Resource>| r.storage.key == self.resource.storage.key;
        catalogue().iter().filter(same).cloned().collect()
    }

    async fn to_version<'o>(&self, object: &'o Object, to: &Resource) -> Result<Cow<'o, Object>, ApiError> {
        if self.is_scale(object) {
            return Ok(Cow::Owned(self.scale_of(object)));
        }
        if !self.is_own(object) || object["apiVersion"] == to.api_version() {
            return Ok(Cow::Borrowed(object));
        }
        if let Some(custom) = self.custom_in(to) {
            return custom.converted(object.clone()).await.map(Cow::Owned);
        }
        let mut object = object.clone();
        convert::from_storage(to, &mut object);
        super::storage_version::settle_served(to, &mut object);
        Ok(Cow::Owned(object))
    }

    async fn to_internal(
        &self,
        changed: Object,
        from: &Resource,
        before: &Object,
    ) -> Result<Object, ApiError> {
        let mut changed = changed;
        if self.is_scale(before) {
            check_kind(&changed, "autoscaling/v1", "Scale")?;
            self.decoded(&mut changed, from)?;
            let mut object = before.clone();
            self.set_replicas(&mut object, changed["spec"]["replicas"].as_i64().unwrap_or(0));
            return Ok(object);
        }
        if !self.is_own(before) {
            check_kind(&changed, text(before, "apiVersion"), text(before, "kind"))?;
            self.decoded(&mut changed, from)?;
            return Ok(changed);
        }
        check_kind(&changed, &from.api_version(), &from.kind)?;
        self.decoded(&mut changed, from)?;
        of(&mut changed);
        if before["apiVersion"] != from.api_version() {
            match self.strategy.custom() {
                Some(custom) => changed = custom.converted(changed).await?,
                None => convert::to_storage(from, &mut changed),
            }
        }
        self.strategy.defaults(&mut changed);
        self.settle(&mut changed);
        Ok(changed)
    }
}
