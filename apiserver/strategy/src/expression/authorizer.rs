//! The variable `authorizer`: what the server's authorizer would say to the user of the request, or to a service account.
//! <https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-authorizer-library>

use coracle_api::UserInfo;
use coracle_cel::{EvalError, External, Value};
use coracle_requests::authorizer::{Attributes, Authorizer, Decision};
use std::fmt;
use std::sync::Arc;

/// Asks for one user. Cloning shares it.
#[derive(Clone)]
pub struct Asker {
    authorizer: Arc<dyn Authorizer>,
    user: Arc<UserInfo>,
    /// The resource of the request, for `authorizer.requestResource`.
    request: Arc<Question>,
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").field("user", &self.user.name).finish_non_exhaustive()
    }
}

/// A resource, as far as it is known by now.
#[derive(Clone, Debug, Default)]
struct Question {
    group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    field_selector: String,
}

impl Asker {
    /// `subresource`, `namespace` and `name` may be empty.
    pub fn new(
        authorizer: Arc<dyn Authorizer>,
        user: &UserInfo,
        [group, resource, subresource]: [&str; 3],
        namespace: &str,
        name: &str,
    ) -> Self {
        let request = Question {
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Question::default()
        };
        Self { authorizer, user: Arc::new(user.clone()), request: Arc::new(request) }
    }

    pub(super) fn value<'a>(&self) -> Value<'a> {
        Value::External(Arc::new(self.clone()))
    }

    fn decide<'a>(&self, attributes: &Attributes<'_>) -> Value<'a> {
        let (allowed, reason) = match self.authorizer.authorize(attributes) {
            Decision::Allow(reason) => (true, reason),
            Decision::Deny(reason) | Decision::NoOpinion(reason) => (false, reason),
        };
        external(Decided { allowed, reason })
    }
}

fn external<'a>(value: impl External) -> Value<'a> {
    Value::External(Arc::new(value))
}

fn texts<'v, const N: usize>(arguments: &'v [Value<'_>]) -> Result<[&'v str; N], EvalError> {
    let texts: Option<Vec<&str>> = arguments.iter().map(Value::as_str).collect();
    texts.and_then(|texts| texts.try_into().ok()).ok_or(EvalError::NoOverload)
}

impl External for Asker {
    fn type_name(&self) -> &'static str {
        "kubernetes.authorization.Authorizer"
    }

    fn field<'a>(&self, name: &str) -> Option<Value<'a>> {
        (name == "requestResource")
            .then(|| external(Resource { asker: self.clone(), of: (*self.request).clone() }))
    }

    fn call<'a>(&self, function: &str, arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
        match function {
            "path" => {
                let [path] = texts(arguments)?;
                if path.is_empty() {
                    return Err(EvalError::Message("path must not be empty".to_owned()));
                }
                Ok(external(Path { asker: self.clone(), path: path.to_owned() }))
            }
            "group" => {
                let [group] = texts(arguments)?;
                Ok(external(Group { asker: self.clone(), group: group.to_owned() }))
            }
            "serviceAccount" => {
                let [namespace, name] = texts(arguments)?;
                self.service_account(namespace, name).map(external)
            }
            _ => Err(EvalError::NoOverload),
        }
    }
}

impl Asker {
    fn service_account(&self, namespace: &str, name: &str) -> Result<Self, EvalError> {
        let wrong = |what: &str, messages: Vec<String>| match messages.as_slice() {
            [] => Ok(()),
            messages => {
                Err(EvalError::Message(format!("Invalid service account {what}: {}", messages.join(", "))))
            }
        };
        wrong("name", coracle_api::validation::dns1123_subdomain(name))?;
        wrong("namespace", coracle_api::validation::dns1123_label(namespace))?;
        Ok(Self { user: Arc::new(UserInfo::service_account(namespace, name)), ..self.clone() })
    }
}

#[derive(Debug)]
struct Path {
    asker: Asker,
    path: String,
}

impl External for Path {
    fn type_name(&self) -> &'static str {
        "kubernetes.authorization.PathCheck"
    }

    fn call<'a>(&self, function: &str, arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
        match function {
            "check" => {
                let [verb] = texts(arguments)?;
                Ok(self.asker.decide(&Attributes::path(&self.asker.user, verb, &self.path)))
            }
            _ => Err(EvalError::NoOverload),
        }
    }
}

#[derive(Debug)]
struct Group {
    asker: Asker,
    group: String,
}

impl External for Group {
    fn type_name(&self) -> &'static str {
        "kubernetes.authorization.GroupCheck"
    }

    fn call<'a>(&self, function: &str, arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
        match function {
            "resource" => {
                let [resource] = texts(arguments)?;
                let of = Question {
                    group: self.group.clone(),
                    resource: resource.to_owned(),
                    ..Question::default()
                };
                Ok(external(Resource { asker: self.asker.clone(), of }))
            }
            _ => Err(EvalError::NoOverload),
        }
    }
}

#[derive(Debug)]
struct Resource {
    asker: Asker,
    of: Question,
}

impl External for Resource {
    fn type_name(&self) -> &'static str {
        "kubernetes.authorization.ResourceCheck"
    }

    fn call<'a>(&self, function: &str, arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
        let [text] = texts(arguments)?;
        let with = |set: fn(&mut Question) -> &mut String| {
            let mut of = self.of.clone();
            text.clone_into(set(&mut of));
            Ok(external(Self { asker: self.asker.clone(), of }))
        };
        match function {
            "subresource" => with(|of| &mut of.subresource),
            "namespace" => with(|of| &mut of.namespace),
            "name" => with(|of| &mut of.name),
            "fieldSelector" => with(|of| &mut of.field_selector),
            // The authorizers here decide nothing by labels, so a selector of labels narrows nothing.
            "labelSelector" => Ok(external(Self { asker: self.asker.clone(), of: self.of.clone() })),
            "check" => {
                let of = &self.of;
                let asked =
                    Attributes::resource(&self.asker.user, text, &of.group, &of.resource, &of.namespace);
                Ok(self.asker.decide(&Attributes {
                    version: "*",
                    subresource: &of.subresource,
                    name: &of.name,
                    field_selector: &of.field_selector,
                    ..asked
                }))
            }
            _ => Err(EvalError::NoOverload),
        }
    }
}

#[derive(Debug)]
struct Decided {
    allowed: bool,
    reason: String,
}

impl External for Decided {
    fn type_name(&self) -> &'static str {
        "kubernetes.authorization.Decision"
    }

    fn call<'a>(&self, function: &str, arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
        let [] = texts(arguments)?;
        match function {
            "allowed" => Ok(Value::Bool(self.allowed)),
            "reason" => Ok(Value::text(self.reason.as_str())),
            // The authorizers here cannot fail.
            "errored" => Ok(Value::Bool(false)),
            "error" => Ok(Value::text("")),
            _ => Err(EvalError::NoOverload),
        }
    }
}
