//! What a request is about, built in or custom, and the strategy that goes with it.

use crate::custom::CustomResource;
use coracle_api::Resource;
use coracle_strategy::{self as strategy, Strategy};
use std::ops::Deref;
use std::sync::Arc;

/// A resource that is served.
#[derive(Clone)]
pub enum Served {
    BuiltIn(&'static Arc<Resource>),
    Custom(Arc<CustomResource>),
}

impl Served {
    pub fn resource(&self) -> &Arc<Resource> {
        match self {
            Self::BuiltIn(resource) => resource,
            Self::Custom(custom) => &custom.resource,
        }
    }

    pub fn custom(&self) -> Option<&CustomResource> {
        match self {
            Self::BuiltIn(_) => None,
            Self::Custom(custom) => Some(custom),
        }
    }

    /// That of the storage version, for built-in resources that are kept elsewhere.
    pub fn strategy(&self) -> StrategyRef {
        match self {
            Self::BuiltIn(resource) => {
                let storage = &resource.storage;
                let plural = storage.key.split('.').next().unwrap_or_default();
                StrategyRef::BuiltIn(strategy::for_resource(&storage.group, plural))
            }
            Self::Custom(custom) => StrategyRef::Custom(custom.clone()),
        }
    }
}

/// A strategy: of a built-in resource, free to copy, or of a version of a custom resource, shared by who uses it.
#[derive(Clone)]
pub enum StrategyRef {
    BuiltIn(&'static dyn Strategy),
    Custom(Arc<CustomResource>),
}

impl StrategyRef {
    pub fn custom(&self) -> Option<&Arc<CustomResource>> {
        match self {
            Self::BuiltIn(_) => None,
            Self::Custom(custom) => Some(custom),
        }
    }
}

impl Deref for StrategyRef {
    type Target = dyn Strategy;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::BuiltIn(strategy) => *strategy,
            Self::Custom(custom) => &**custom,
        }
    }
}

impl From<&'static dyn Strategy> for StrategyRef {
    fn from(strategy: &'static dyn Strategy) -> Self {
        Self::BuiltIn(strategy)
    }
}
