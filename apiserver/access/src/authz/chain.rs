//! Authorizers one after the other: the first that allows or denies decides.

use super::gate::{Decide, Pending, Said};
use super::node::NodeAuthorizer;
use super::rules::Resolved;
use super::webhook::{self, Webhook};
use super::{Attributes, Authorizer, Decision, Generation, MASTERS, Rbac, Verdict};
use coracle_api::UserInfo;
use coracle_component_base::metrics::{Counter, Family, Metrics};
use coracle_requests::ObjectReader;
use std::sync::Arc;

/// What is counted of authorization, over every change of its configuration.
struct Figures {
    /// Under upstream's name. Who decides is counted; `system:masters` are not, because nobody is asked.
    decisions: Family<Counter>,
    webhooks: Arc<webhook::Metrics>,
}

impl Default for Figures {
    fn default() -> Self {
        let decisions = Family::new(
            "apiserver_authorization_decisions_total",
            "Decisions that ended the question, by the authorizer that made them.",
            &["decision", "name", "type"],
            Counter::default,
        );
        Self { decisions, webhooks: Arc::default() }
    }
}

/// The authorizers that read this server's own objects. They are made once and serve every chain, so that a new
/// configuration begins with what they have compiled.
#[derive(Clone)]
pub struct Locals {
    node: Arc<NodeAuthorizer>,
    rbac: Arc<Rbac>,
    figures: Arc<Figures>,
}

impl Locals {
    pub fn new(read: Arc<dyn ObjectReader>, generation: Generation) -> Self {
        let node = Arc::new(NodeAuthorizer::new(read.clone()));
        Self { node, rbac: Arc::new(Rbac::new(read, generation)), figures: Arc::default() }
    }

    /// Writes what the chains count on the page of `metrics`.
    pub fn show_in(&self, metrics: &Metrics) {
        let shown = self.figures.clone();
        metrics.collect_as("authorization", move |text| {
            shown.decisions.render(text);
            shown.webhooks.render(text);
        });
    }

    pub(super) fn webhook(&self, webhook: Webhook) -> By {
        By::Webhook(Box::new(webhook.counted_in(self.figures.webhooks.clone())))
    }

    pub(super) fn node(&self) -> By {
        By::Local(self.node.clone())
    }

    pub(super) fn rbac(&self) -> By {
        By::Local(self.rbac.clone())
    }
}

/// Who is asked in one place of the chain.
pub(super) enum By {
    Local(Arc<dyn Authorizer>),
    Webhook(Box<Webhook>),
}

struct Link {
    by: By,
    allowed: Arc<Counter>,
    denied: Arc<Counter>,
}

/// The authorizers of the API server, in order.
pub struct Chain {
    links: Vec<Link>,
    rbac: Arc<Rbac>,
}

impl Chain {
    /// Node, then RBAC.
    pub fn new(read: Arc<dyn ObjectReader>, generation: Generation) -> Self {
        let locals = Locals::new(read, generation);
        let named = |kind: &'static str, by| (kind, kind.to_lowercase(), by);
        Self::of(&locals, vec![named("Node", locals.node()), named("RBAC", locals.rbac())])
    }

    /// `links` are type, name and who it is.
    pub(super) fn of(locals: &Locals, links: Vec<(&'static str, String, By)>) -> Self {
        let link = |(kind, name, by): (&str, String, By)| {
            let counter = |decision| locals.figures.decisions.handle(&[decision, &name, kind]);
            Link { by, allowed: counter("allowed"), denied: counter("denied") }
        };
        Self { links: links.into_iter().map(link).collect(), rbac: locals.rbac.clone() }
    }

    /// Asks from the link `at` on.
    fn walk(&self, attributes: &Attributes<'_>, at: usize, mut said: Said) -> Result<Verdict, Pending> {
        for (at, link) in self.links.iter().enumerate().skip(at) {
            let verdict = match &link.by {
                By::Local(authorizer) => authorizer.judge(attributes),
                By::Webhook(webhook) => match webhook.begin(attributes) {
                    Ok(verdict) => verdict,
                    Err(review) => return Err(Pending { at, before: said, review }),
                },
            };
            if let Some(end) = link.ends(verdict, &mut said) {
                return Ok(end);
            }
        }
        let Said { reasons, errors } = said;
        Ok(Verdict { decision: Decision::NoOpinion(reasons.join("\n")), error: joined(errors) })
    }
}

impl Link {
    /// The verdict of the whole chain, if this one's ends it.
    fn ends(&self, verdict: Verdict, said: &mut Said) -> Option<Verdict> {
        match &verdict.decision {
            Decision::Allow(_) => self.allowed.add(1),
            Decision::Deny(_) => self.denied.add(1),
            Decision::NoOpinion(reason) => {
                said.reasons.extend(Some(reason.clone()).filter(|reason| !reason.is_empty()));
                said.errors.extend(verdict.error);
                return None;
            }
        }
        Some(verdict)
    }
}

fn joined(errors: Vec<String>) -> Option<String> {
    match errors.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

#[async_trait::async_trait]
impl Decide for Chain {
    fn begin(&self, attributes: &Attributes<'_>) -> Result<Verdict, Pending> {
        if attributes.user.in_group(MASTERS) {
            return Ok(Decision::Allow(String::new()).into());
        }
        self.walk(attributes, 0, Said::default())
    }

    async fn finish(&self, attributes: &Attributes<'_>, pending: Pending) -> Verdict {
        let mut pending = pending;
        loop {
            let Pending { at, before: mut said, review } = pending;
            // Whoever began put it at a webhook of this chain; if not, nobody is let through.
            let Some(Link { by: By::Webhook(webhook), .. }) = self.links.get(at) else {
                return Decision::Deny("the authorizers have changed".to_owned()).into();
            };
            let verdict = webhook.ask(review).await;
            if let Some(end) = self.links[at].ends(verdict, &mut said) {
                return end;
            }
            match self.walk(attributes, at + 1, said) {
                Ok(verdict) => return verdict,
                Err(next) => pending = next,
            }
        }
    }

    fn rules_for(&self, user: &UserInfo, namespace: &str) -> Resolved {
        let mut all = Resolved::default();
        for link in &self.links {
            let Resolved { rules, errors } = match &link.by {
                By::Local(authorizer) => authorizer.rules_for(user, namespace),
                By::Webhook(_) => Resolved {
                    rules: Vec::new(),
                    errors: vec!["webhook authorizer does not support user rule resolution".to_owned()],
                },
            };
            all.rules.extend(rules);
            all.errors.extend(errors);
        }
        all
    }

    fn granted(&self, user: &UserInfo, namespace: &str) -> Resolved {
        self.rbac.rules_for(user, namespace)
    }
}
