//! Which authorizers there are: the file of `--authorization-config`
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/#using-configuration-file-for-authorization>),
//! or the flags `--authorization-mode` and `--authorization-webhook-*`.

mod document;
mod webhook;

#[cfg(test)]
mod tests;

use super::chain::By;
use super::webhook::{Conditions, Settings, Version, Webhook};
use super::{Chain, Gate, Locals, always};
use coracle_component_base::config_file::{self, Reloads};
use coracle_component_base::metrics::Metrics;
use coracle_webhook::kubeconfig::{RETRY_BACKOFF, Remote};
use futures::FutureExt;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How this server names itself to authorization webhooks.
const AGENT: &str = "kube-apiserver";

/// Before the names of the metrics of reloading: upstream's.
const METRICS: &str = "apiserver_authorization_config_controller";

/// Upstream's defaults for what webhooks answer.
const AUTHORIZED_TTL: Duration = Duration::from_secs(5 * 60);
const UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);
/// And the timeout of a webhook that flags configure.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// An authorizer's `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    AlwaysAllow,
    AlwaysDeny,
    Webhook,
    Rbac,
    Node,
}

impl Kind {
    /// Upstream's, without ABAC.
    const ALL: [(&'static str, Self); 5] = [
        ("AlwaysAllow", Self::AlwaysAllow),
        ("AlwaysDeny", Self::AlwaysDeny),
        ("Node", Self::Node),
        ("RBAC", Self::Rbac),
        ("Webhook", Self::Webhook),
    ];

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    fn names() -> Vec<&'static str> {
        Self::ALL.iter().map(|(name, _)| *name).collect()
    }

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// Why ABAC is no choice.
const NO_ABAC: &str = "ABAC is not supported by this server; use RBAC or a webhook";

/// A checked configuration, with webhooks that are ready to be asked.
pub struct Plan(Vec<Planned>);

struct Planned {
    kind: Kind,
    name: String,
    webhook: Option<Webhook>,
}

/// What flags say; the defaults are upstream's, but for the mode, which is Node,RBAC.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    pub mode: Option<Vec<String>>,
    pub webhook_config_file: Option<PathBuf>,
    pub webhook_version: Option<String>,
    pub webhook_cache_authorized_ttl: Option<Duration>,
    pub webhook_cache_unauthorized_ttl: Option<Duration>,
}

impl Flags {
    /// Whether any of them is given: then there can be no file.
    pub fn is_given(&self) -> bool {
        let Self { mode, webhook_config_file, webhook_version, .. } = self;
        let times = [self.webhook_cache_authorized_ttl, self.webhook_cache_unauthorized_ttl];
        mode.is_some()
            || webhook_config_file.is_some()
            || webhook_version.is_some()
            || times.iter().any(Option::is_some)
    }

    /// # Errors
    /// Every mistake, in upstream's words.
    pub fn plan(&self) -> Result<Plan, Vec<String>> {
        let default = || vec!["Node".to_owned(), "RBAC".to_owned()];
        let modes = self.mode.clone().unwrap_or_else(default);
        let mut mistakes = Vec::new();
        if modes.is_empty() {
            mistakes.push("at least one authorization-mode must be passed".to_owned());
        }
        let mut kinds = Vec::new();
        for mode in &modes {
            match Kind::parse(mode) {
                _ if mode == "ABAC" => mistakes.push(format!("authorization-mode: {NO_ABAC}")),
                None => mistakes.push(format!("authorization-mode {mode:?} is not a valid mode")),
                Some(kind) if kinds.contains(&kind) => {
                    mistakes.push(format!("authorization-mode {modes:?} has mode specified more than once"));
                }
                Some(kind) => kinds.push(kind),
            }
        }
        let mut webhook = self.webhook(kinds.contains(&Kind::Webhook), &mut mistakes);
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let planned = |kind: Kind| match kind {
            Kind::Webhook => Planned { kind, name: "default".to_owned(), webhook: webhook.take() },
            _ => Planned { kind, name: kind.name().to_lowercase(), webhook: None },
        };
        Ok(Plan(kinds.into_iter().map(planned).collect()))
    }

    fn webhook(&self, wanted: bool, mistakes: &mut Vec<String>) -> Option<Webhook> {
        let version = match self.webhook_version.as_deref().unwrap_or("v1beta1") {
            "v1" => Version::V1,
            "v1beta1" => Version::V1beta1,
            other => {
                mistakes.push(format!("authorization-webhook-version: {other:?} is neither v1 nor v1beta1"));
                return None;
            }
        };
        let file = match (&self.webhook_config_file, wanted) {
            (Some(file), true) => file,
            (None, true) => {
                mistakes.push("authorization-mode Webhook's authorization config file not passed".to_owned());
                return None;
            }
            (Some(_), false) => {
                let why = "cannot specify --authorization-webhook-config-file without mode Webhook";
                mistakes.push(why.to_owned());
                return None;
            }
            (None, false) => return None,
        };
        let remote = Remote::load(file, AGENT)
            .map_err(|error| mistakes.push(format!("authorization-webhook-config-file: {error}")))
            .ok()?;
        let settings = Settings {
            name: "default".to_owned(),
            timeout: DEFAULT_TIMEOUT,
            backoff: RETRY_BACKOFF,
            version,
            authorized_ttl: self.webhook_cache_authorized_ttl.unwrap_or(AUTHORIZED_TTL),
            unauthorized_ttl: self.webhook_cache_unauthorized_ttl.unwrap_or(UNAUTHORIZED_TTL),
            denies_on_error: false,
        };
        Some(Webhook::new(settings, Conditions::default(), remote))
    }
}

impl Plan {
    /// Of an AuthorizationConfiguration.
    ///
    /// # Errors
    /// Every mistake, with its field.
    pub fn parse(text: &str) -> Result<Self, Vec<String>> {
        document::read(text)
    }

    /// The types that are there, without webhooks.
    fn local_kinds(&self) -> BTreeSet<Kind> {
        self.0.iter().map(|planned| planned.kind).filter(|kind| *kind != Kind::Webhook).collect()
    }

    /// Puts the configuration to work.
    pub fn chain(self, locals: &Locals) -> Chain {
        let link = |Planned { kind, name, webhook }: Planned| {
            let by = match (kind, webhook) {
                (Kind::Node, _) => locals.node(),
                (Kind::Rbac, _) => locals.rbac(),
                (Kind::AlwaysAllow, _) => By::Local(Arc::new(always::AlwaysAllow)),
                (Kind::Webhook, Some(webhook)) => locals.webhook(webhook),
                // No constructor makes a webhook without its settings; if one did, it would let nobody through.
                (Kind::AlwaysDeny | Kind::Webhook, _) => By::Local(Arc::new(always::AlwaysDeny)),
            };
            (kind.name(), name, by)
        };
        Chain::of(locals, self.0.into_iter().map(link).collect())
    }
}

/// What becomes of the documents that are read after this one, on the page of `metrics`.
pub fn reloads(text: &str, metrics: &Metrics) -> Arc<Reloads> {
    Reloads::begin(METRICS, text, metrics)
}

/// Follows the file until `stop`, counting in `reloads`: a good document is put to work, a broken one leaves the last good one. As upstream, the
/// types that are no webhooks must stay those that the server began with.
pub async fn follow(
    (path, text): (PathBuf, String),
    reloads: Arc<Reloads>,
    gate: Arc<Gate>,
    locals: Locals,
    stop: CancellationToken,
) {
    let began_with = Plan::parse(&text).map(|plan| plan.local_kinds()).unwrap_or_default();
    let apply = move |text: String| {
        let done = reload(&text, &began_with, &locals).map(|chain| gate.replace(chain));
        async move { done }.boxed()
    };
    config_file::follow(path, text, reloads, Box::new(apply), stop).await;
}

fn reload(text: &str, began_with: &BTreeSet<Kind>, locals: &Locals) -> Result<Chain, String> {
    let plan = Plan::parse(text).map_err(|mistakes| mistakes.join("; "))?;
    let kinds = plan.local_kinds();
    let names = |kinds: Vec<&Kind>| kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" ");
    let missing: Vec<&Kind> = began_with.difference(&kinds).collect();
    if !missing.is_empty() {
        return Err(format!("missing required types: [{}]", names(missing)));
    }
    let added: Vec<&Kind> = kinds.difference(began_with).collect();
    if !added.is_empty() {
        let added = names(added);
        return Err(format!(
            "authorizer type {added} is not allowed if it was not enabled at initial server startup"
        ));
    }
    Ok(plan.chain(locals))
}

/// Reads the file as it is when the server starts.
///
/// # Errors
/// Every mistake, with the file and the field.
pub fn load(path: &Path) -> Result<(String, Plan), Vec<String>> {
    let named = |mistake: String| format!("{}: {mistake}", path.display());
    let text = config_file::read(path).map_err(|error| vec![coracle_api::error::chain(&error)])?;
    let plan = Plan::parse(&text).map_err(|mistakes| mistakes.into_iter().map(named).collect::<Vec<_>>())?;
    Ok((text, plan))
}
