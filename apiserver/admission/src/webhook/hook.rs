//! One webhook as it is configured, ready to be asked.

use crate::matching::Matcher;
use coracle_api::Object;
use coracle_requests::value::{list_at, name, str_at, strings_at};
use coracle_strategy::expression::MatchConditions;
use coracle_webhook::{CallError, Client, Target};
use serde_json::Value;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Versions of AdmissionReview that this server speaks.
const KNOWN: [&str; 2] = ["v1", "v1beta1"];

/// Seconds of a webhook that says nothing; defaults fill it in, so this is for objects from elsewhere.
const TIMEOUT_SECONDS: u64 = 10;

pub(super) struct Hook {
    pub configuration: String,
    pub name: String,
    /// Of all webhooks of its sort; the same as long as its configuration is.
    pub id: String,
    /// Or why it cannot be matched.
    pub matcher: Result<Matcher, String>,
    pub conditions: MatchConditions,
    /// `failurePolicy: Ignore`
    pub fails_open: bool,
    pub timeout: Duration,
    /// `None` where nothing is said.
    pub side_effects: Option<String>,
    /// Of AdmissionReview: the first one listed that is known here.
    pub review_version: Option<&'static str>,
    /// `reinvocationPolicy: IfNeeded`
    pub reinvoked: bool,
    client_config: Value,
    target: OnceLock<Arc<Target>>,
}

/// The webhooks of a configuration, in their order.
pub(super) fn compile(configuration: &Object) -> Vec<Arc<Hook>> {
    let owner = name(configuration);
    let hooks = list_at(configuration, "webhooks");
    hooks.iter().enumerate().map(|(i, hook)| Arc::new(Hook::new(owner, i, hook))).collect()
}

impl Hook {
    fn new(configuration: &str, at: usize, hook: &Value) -> Self {
        let known = |version: &str| KNOWN.into_iter().find(|known| *known == version);
        Self {
            configuration: configuration.to_owned(),
            name: str_at(hook, "name").to_owned(),
            id: format!("{configuration}/{}/{at}", str_at(hook, "name")),
            matcher: Matcher::of_webhook(hook).map_err(|error| error.to_string()),
            conditions: MatchConditions::compile(&hook["matchConditions"]),
            fails_open: str_at(hook, "failurePolicy") == "Ignore",
            timeout: Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(TIMEOUT_SECONDS)),
            side_effects: hook["sideEffects"].as_str().map(str::to_owned),
            review_version: strings_at(hook, "admissionReviewVersions").find_map(known),
            reinvoked: str_at(hook, "reinvocationPolicy") == "IfNeeded",
            client_config: hook["clientConfig"].clone(),
            target: OnceLock::new(),
        }
    }

    /// Where it is; looked up once.
    pub fn target(&self, client: &Client) -> Result<&Arc<Target>, CallError> {
        if let Some(target) = self.target.get() {
            return Ok(target);
        }
        let target = client.target(&self.client_config)?;
        Ok(self.target.get_or_init(|| target))
    }
}
