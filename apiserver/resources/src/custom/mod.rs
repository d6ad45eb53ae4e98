//! Custom resources on the generic path: the strategy of one version of a CustomResourceDefinition.
//!
//! Writes work in the version that the request names: what is stored is brought there first ([`read`]), and what is
//! written goes to the storage version in the end. Schemas are compiled at first use and shared by all requests.

mod coerce;
mod columns;
mod definition;
#[cfg(test)]
mod definition_tests;
mod fields;
mod jsonpath;
mod numbers;
pub mod read;
mod schema;
mod strategy;
#[cfg(test)]
mod tests;
mod validate;
mod versions;

pub(crate) use definition::raw_schema;
pub use definition::{Conversion, Definition, PrinterColumn, ScalePaths, Version, newer_first};
pub use fields::text_at;
pub use schema::Schema;
pub use versions::{Memo, OtherVersions};

use columns::Columns;
use coracle_api::Resource;
use std::sync::{Arc, OnceLock};

/// One version of a definition.
pub struct CustomResource {
    pub resource: Arc<Resource>,
    pub definition: Arc<Definition>,
    /// Its place in the definition.
    at: usize,
    columns: OnceLock<Columns>,
}

impl CustomResource {
    pub(crate) fn new(definition: Arc<Definition>, at: usize, resource: Arc<Resource>) -> Self {
        Self { resource, definition, at, columns: OnceLock::new() }
    }

    pub fn version(&self) -> &Version {
        &self.definition.versions[self.at]
    }

    pub fn is_storage(&self) -> bool {
        self.version().storage
    }

    /// Whether requests can name it.
    pub fn is_served(&self) -> bool {
        self.definition.established && self.version().served
    }

    /// Its schema, compiled.
    pub fn schema(&self) -> &Arc<Schema> {
        self.definition.schema(self.at)
    }

    pub fn scale(&self) -> Option<&ScalePaths> {
        self.version().scale.as_ref()
    }

    /// Whether field selectors can name it in this version.
    pub fn selects_by(&self, field: &str) -> bool {
        self.version().selectable.iter().any(|known| known == field)
    }

    /// Whether what it shows of some objects is known only after a webhook has converted them.
    pub fn is_foreign(&self) -> bool {
        let own = &self.version().name;
        let converts = || self.definition.stored_versions.iter().any(|stored| stored != own);
        self.definition.conversion != Conversion::None && (!self.is_storage() || converts())
    }

    fn table(&self) -> &Columns {
        self.columns.get_or_init(|| Columns::of(&self.version().columns))
    }

    /// What clients are warned of when they use a deprecated version.
    pub fn deprecation_warning(&self) -> Option<String> {
        let version = self.version();
        let own = || version.deprecation_warning.clone();
        version.deprecated.then(|| own().unwrap_or_else(|| self.default_warning()))
    }

    fn default_warning(&self) -> String {
        let Resource { group, kind, .. } = &*self.resource;
        let here = &self.version().name;
        let mut text = format!("{group}/{here} {kind} is deprecated");
        let is_newer = |v: &&Version| v.served && !v.deprecated;
        if let Some(newest) = self.definition.versions.iter().find(is_newer)
            && newer_first(&newest.name, here).is_lt()
        {
            text.push_str(&format!("; use {group}/{} {kind}", newest.name));
        }
        text
    }
}
