//! What stands behind the built-in plugins: admission that users configure, webhooks and policies.

use super::Attributes;
use coracle_access::authz::Asking;
use coracle_api::{ApiError, Object};
use coracle_component_base::metrics::Metrics;
use coracle_requests::ObjectReader;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A request on its way through admission, without its objects.
pub(crate) struct Write<'a> {
    pub attributes: &'a Attributes<'a>,
    pub read: &'a Arc<dyn ObjectReader>,
    pub metrics: &'a Metrics,
    /// For expressions that ask; absent in tests of the plugins.
    pub asking: Option<&'a Arc<Asking>>,
}

impl Write<'_> {
    /// Does what may ask for a right, until all its questions are answered; it must do nothing but decide.
    pub async fn settle<T>(&self, work: impl FnMut() -> T) -> T {
        let mut work = work;
        match self.asking {
            Some(asking) => asking.settle(work).await,
            None => work(),
        }
    }
}

/// Mutation by what users have configured.
#[async_trait::async_trait]
pub(crate) trait MutatingStep: Send + Sync {
    /// Upstream's name, as in `--disable-admission-plugins`.
    fn name(&self) -> &'static str;

    /// Called for every operation, for objects in the form of the registry. `object` is absent for deletions.
    async fn mutate(
        &self,
        write: &Write<'_>,
        object: Option<&mut Object>,
        old: Option<&Object>,
        round: &mut Round,
    ) -> Result<(), ApiError>;
}

/// Validation by what users have configured.
#[async_trait::async_trait]
pub(crate) trait ValidatingStep: Send + Sync {
    /// Upstream's name, as in `--disable-admission-plugins`.
    fn name(&self) -> &'static str;

    /// As [`MutatingStep::mutate`], behind the validation of the object itself.
    async fn validate(
        &self,
        write: &Write<'_>,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError>;
}

/// Mutation goes through all plugins and steps once, and a second time if a step has asked for it because it changed
/// what others had seen (`reinvocationPolicy: IfNeeded`).
#[derive(Default)]
pub(crate) struct Round {
    second: bool,
    again: bool,
    notes: BTreeMap<&'static str, Box<dyn Any + Send>>,
}

impl Round {
    /// Whether everybody has been asked once already.
    pub fn is_second(&self) -> bool {
        self.second
    }

    /// As audit annotations number it.
    pub fn number(&self) -> u8 {
        self.second.into()
    }

    pub fn ask_again(&mut self) {
        self.again = true;
    }

    /// Begins the second round, if there is to be one.
    pub fn advance(&mut self) -> bool {
        let goes_on = self.again && !self.second;
        self.second |= goes_on;
        goes_on
    }

    /// What a step keeps from one round to the next, under its name.
    pub fn notes<T: Any + Default + Send>(&mut self, step: &'static str) -> &mut T {
        let kept = self.notes.entry(step).or_insert_with(|| Box::new(T::default()));
        if !kept.is::<T>() {
            *kept = Box::new(T::default());
        }
        kept.downcast_mut().expect("the line above made it one")
    }
}
