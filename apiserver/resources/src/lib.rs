//! Which resources are served, and their present state: the watch cache over the store, the catalogue of built-in and
//! custom resources, custom resources themselves with their versions and conversion webhooks, and the controller of
//! their definitions.

pub mod cache;
pub mod catalogue;
pub mod conversion;
pub mod custom;
pub mod definitions;

use coracle_component_base::metrics::Metrics;
use coracle_store::{Store, StoreError};
use std::sync::Arc;

/// What is served, and its present state. Cloning shares it.
#[derive(Clone)]
pub struct Resources {
    pub cache: Arc<cache::Cache>,
    pub catalogue: Arc<catalogue::Catalogue>,
}

impl Resources {
    /// Loads the present state and follows the store until it closes. What is served is counted in `metrics`, as what
    /// serves it is.
    ///
    /// # Errors
    /// What the store says when it is read.
    pub async fn load(store: Arc<dyn Store>, metrics: Arc<Metrics>) -> Result<Self, StoreError> {
        let catalogue = Arc::new(catalogue::Catalogue::default());
        let cache = cache::Cache::start(store, catalogue.clone(), metrics).await?;
        catalogue.read_from(&cache);
        Ok(Self { cache, catalogue })
    }
}
