//! Where the server asks whether a request may go on, and how synchronous code asks those who take their time.

use super::rules::Resolved;
use super::webhook::Review;
use super::{Attributes, Authorizer, Decision, Verdict};
use coracle_api::UserInfo;
use futures::future::join_all;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Somebody who decides, and may have to ask others over the network before.
#[async_trait::async_trait]
pub trait Decide: Send + Sync {
    /// Goes as far as cached state leads: a verdict, or the point where a webhook has to be asked.
    ///
    /// # Errors
    /// The point, which is no failure.
    fn begin(&self, attributes: &Attributes<'_>) -> Result<Verdict, Pending>;

    /// Goes on from there, with the same attributes. Bounded in time by the webhooks' own limits.
    async fn finish(&self, attributes: &Attributes<'_>, pending: Pending) -> Verdict;

    /// As [`Authorizer::rules_for`].
    fn rules_for(&self, user: &UserInfo, namespace: &str) -> Resolved;

    /// As [`Authorizer::granted`].
    fn granted(&self, user: &UserInfo, namespace: &str) -> Resolved;
}

/// Where a decision has stopped: at a webhook that must be asked.
pub struct Pending {
    pub(super) at: usize,
    pub(super) before: Said,
    pub(super) review: Review,
}

/// What those had to say who had no opinion.
#[derive(Default)]
pub(super) struct Said {
    pub reasons: Vec<String>,
    pub errors: Vec<String>,
}

/// One who answers at once.
struct Local<A>(A);

#[async_trait::async_trait]
impl<A: Authorizer> Decide for Local<A> {
    fn begin(&self, attributes: &Attributes<'_>) -> Result<Verdict, Pending> {
        Ok(self.0.judge(attributes))
    }

    async fn finish(&self, attributes: &Attributes<'_>, _: Pending) -> Verdict {
        self.0.judge(attributes)
    }

    fn rules_for(&self, user: &UserInfo, namespace: &str) -> Resolved {
        self.0.rules_for(user, namespace)
    }

    fn granted(&self, user: &UserInfo, namespace: &str) -> Resolved {
        self.0.granted(user, namespace)
    }
}

/// Whom the server asks; it can be replaced while the server runs. A decision that has begun ends with those it began with.
pub struct Gate(RwLock<Arc<dyn Decide>>);

impl Gate {
    pub fn new(first: impl Decide + 'static) -> Arc<Self> {
        Arc::new(Self(RwLock::new(Arc::new(first))))
    }

    /// For authorizers that never have to be waited for.
    pub fn local(authorizer: impl Authorizer + 'static) -> Arc<Self> {
        Self::new(Local(authorizer))
    }

    /// From now on `next` is asked.
    pub fn replace(&self, next: impl Decide + 'static) {
        *self.0.write() = Arc::new(next);
    }

    fn present(&self) -> Arc<dyn Decide> {
        self.0.read().clone()
    }

    /// Waits only if a webhook has to be asked. Safe to cancel.
    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        let present = self.present();
        match present.begin(attributes) {
            Ok(verdict) => verdict,
            // Boxed: it must not make the future of every request larger.
            Err(pending) => Box::pin(present.finish(attributes, pending)).await,
        }
    }

    /// As [`Authorizer::rules_for`]; webhooks have none.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> Resolved {
        self.present().rules_for(user, namespace)
    }

    /// An authorizer for the synchronous work of one request; see [`Asking::settled`].
    pub fn ask(&self) -> Arc<Asking> {
        Arc::new(Asking { present: self.present(), state: Mutex::default() })
    }

    /// Does synchronous work whose questions may have to be waited for; it is repeated until all of them are answered,
    /// so it must do nothing but decide.
    pub async fn settle<T>(&self, work: impl FnMut(&dyn Authorizer) -> T) -> T {
        let asking = self.ask();
        let mut work = work;
        asking.settle(|| work(&*asking)).await
    }
}

/// The questions of one request to those who decide, with their answers. What cannot be answered at once is noted, and
/// until it is answered it is allowed to nobody; whoever has asked awaits [`settled`](Self::settled) and repeats its work
/// when that says so.
pub struct Asking {
    present: Arc<dyn Decide>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: HashMap<OwnedAttributes, Verdict>,
    open: Vec<(OwnedAttributes, Pending)>,
}

impl Asking {
    /// Answers what is open. True if everything had been answered: then what was decided stands.
    pub async fn settled(&self) -> bool {
        let open = std::mem::take(&mut self.state.lock().open);
        if open.is_empty() {
            return true;
        }
        let answers = open.into_iter().map(|(asked, pending)| async move {
            let verdict = self.present.finish(&asked.attributes(), pending).await;
            (asked, verdict)
        });
        let answers = join_all(answers).await;
        self.state.lock().known.extend(answers);
        false
    }

    fn known(&self, attributes: &Attributes<'_>) -> Option<Verdict> {
        let state = self.state.lock();
        if state.known.is_empty() { None } else { state.known.get(&OwnedAttributes::of(attributes)).cloned() }
    }

    /// Whether something has been decided without an answer.
    pub fn is_open(&self) -> bool {
        !self.state.lock().open.is_empty()
    }

    /// Repeats synchronous work until every question in it has been answered.
    pub async fn settle<T>(&self, work: impl FnMut() -> T) -> T {
        let mut work = work;
        loop {
            {
                let done = work();
                if !self.is_open() {
                    return done;
                }
            }
            // Each turn answers at least one question that was open, and the same one is never open again.
            Box::pin(self.settled()).await;
        }
    }
}

impl Authorizer for Asking {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        self.judge(attributes).decision
    }

    fn judge(&self, attributes: &Attributes<'_>) -> Verdict {
        if let Some(known) = self.known(attributes) {
            return known;
        }
        let pending = match self.present.begin(attributes) {
            Ok(verdict) => return verdict,
            Err(pending) => pending,
        };
        let asked = OwnedAttributes::of(attributes);
        let mut state = self.state.lock();
        if !state.open.iter().any(|(open, _)| *open == asked) {
            state.open.push((asked, pending));
        }
        Decision::NoOpinion("a webhook has not answered yet".to_owned()).into()
    }

    fn rules_for(&self, user: &UserInfo, namespace: &str) -> Resolved {
        self.present.rules_for(user, namespace)
    }

    fn granted(&self, user: &UserInfo, namespace: &str) -> Resolved {
        self.present.granted(user, namespace)
    }
}

/// Attributes that outlive their request's borrow.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnedAttributes {
    user: UserInfo,
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    field_selector: String,
    label_selector: String,
    path: Option<String>,
}

impl Hash for OwnedAttributes {
    /// Of what differs most; equality looks at everything.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.user.name, &self.verb, &self.resource, &self.namespace, &self.name, &self.path).hash(state);
    }
}

impl OwnedAttributes {
    fn of(attributes: &Attributes<'_>) -> Self {
        Self {
            user: attributes.user.clone(),
            verb: attributes.verb.to_owned(),
            group: attributes.group.to_owned(),
            version: attributes.version.to_owned(),
            resource: attributes.resource.to_owned(),
            subresource: attributes.subresource.to_owned(),
            namespace: attributes.namespace.to_owned(),
            name: attributes.name.to_owned(),
            field_selector: attributes.field_selector.to_owned(),
            label_selector: attributes.label_selector.to_owned(),
            path: attributes.path.map(str::to_owned),
        }
    }

    fn attributes(&self) -> Attributes<'_> {
        Attributes {
            user: &self.user,
            verb: &self.verb,
            group: &self.group,
            version: &self.version,
            resource: &self.resource,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            field_selector: &self.field_selector,
            label_selector: &self.label_selector,
            path: self.path.as_deref(),
        }
    }
}
