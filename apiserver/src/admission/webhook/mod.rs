//! Admission webhooks: MutatingWebhookConfigurations and ValidatingWebhookConfigurations
//! (<https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>).

use super::{MutatingStep, Round, ValidatingStep, Write};
use crate::strategy::Reader;
use crate::webhook::Client;
use coracle_api::{ApiError, Object};
use std::sync::Arc;

pub const MUTATING: &str = "MutatingAdmissionWebhook";
pub const VALIDATING: &str = "ValidatingAdmissionWebhook";

pub struct Mutating {
    client: Client,
}

pub struct Validating {
    client: Client,
}

impl Mutating {
    pub fn new(read: Arc<dyn Reader>) -> Self {
        Self { client: Client::new(read) }
    }
}

impl Validating {
    pub fn new(read: Arc<dyn Reader>) -> Self {
        Self { client: Client::new(read) }
    }
}

#[async_trait::async_trait]
impl MutatingStep for Mutating {
    fn name(&self) -> &'static str {
        MUTATING
    }

    async fn mutate(
        &self,
        _write: &Write<'_>,
        _object: Option<&mut Object>,
        _old: Option<&Object>,
        _round: &mut Round,
    ) -> Result<(), ApiError> {
        let _ = &self.client;
        Ok(())
    }
}

#[async_trait::async_trait]
impl ValidatingStep for Validating {
    fn name(&self) -> &'static str {
        VALIDATING
    }

    async fn validate(
        &self,
        _write: &Write<'_>,
        _object: Option<&Object>,
        _old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let _ = &self.client;
        Ok(())
    }
}
