//! ValidatingAdmissionWebhook: all webhooks at once. Every answer is awaited; of several refusals the first in the order
//! of the configurations is told.

use super::VALIDATING;
use super::ask::Asking;
use super::audit::Place;
use super::hook::Hook;
use super::hooks::{Compiled, Hooks};
use super::review::Shown;
use crate::matching::is_exempt;
use crate::{ValidatingStep, Write};
use coracle_api::{ApiError, Object};
use coracle_requests::ObjectReader;
use futures::future::join_all;
use std::sync::Arc;
use std::time::Instant;

pub struct Validating(Hooks);

/// A webhook that is to be asked, and what it is to see.
struct HookCall<'a> {
    hook: &'a Hook,
    shown: Arc<Shown<'a>>,
}

impl Validating {
    pub fn new(read: Arc<dyn ObjectReader>) -> Self {
        Self(Hooks::new(read, "validatingwebhookconfigurations.admissionregistration.k8s.io"))
    }
}

#[async_trait::async_trait]
impl ValidatingStep for Validating {
    fn name(&self) -> &'static str {
        VALIDATING
    }

    async fn validate(
        &self,
        write: &Write<'_>,
        object: Option<&Object>,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let Some(compiled) = self.0.now(write.metrics) else { return Ok(()) };
        if is_exempt(write.attributes) {
            return Ok(());
        }
        let asking = Asking { client: &self.0.client, write, mutating: false };
        let all = concerned(&asking, &compiled, object, old).await?;
        let calls = all.iter().enumerate().map(|(index, asked)| call(&asking, asked, index));
        join_all(calls).await.into_iter().collect()
    }
}

async fn concerned<'a>(
    asking: &Asking<'_>,
    compiled: &'a Compiled,
    object: Option<&'a Object>,
    old: Option<&'a Object>,
) -> Result<Vec<HookCall<'a>>, ApiError> {
    let mut all: Vec<HookCall<'a>> = Vec::new();
    for hook in compiled.iter() {
        let Some(resource) = asking.matched(hook, object, old)? else { continue };
        let same = all.iter().find(|asked| asked.shown.resource == resource);
        let shown = match same {
            Some(asked) => asked.shown.clone(),
            None => Arc::new(Shown::new(asking.write, resource, object, old).await?),
        };
        if asking.wanted(hook, &shown).await? {
            all.push(HookCall { hook, shown });
        }
    }
    Ok(all)
}

async fn call(asking: &Asking<'_>, asked: &HookCall<'_>, index: usize) -> Result<(), ApiError> {
    let began = Instant::now();
    let outcome = asking.ask(asked.hook, &asked.shown).await;
    if asking.judge(asked.hook, outcome, began.elapsed())?.is_none() {
        Place { round: 0, index }.validation_failed_open(asked.hook);
    }
    Ok(())
}
