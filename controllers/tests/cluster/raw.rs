//! Requests as a client without types sends them: paths and JSON.

use crate::support::{World, until};
use http::{Method, Request};
use serde_json::Value;

/// What kind of patch a body is.
#[derive(Clone, Copy)]
pub enum Kind {
    Merge,
    Strategic,
}

/// Speaks for somebody who may do everything.
pub struct Raw(kube::Client);

impl Raw {
    pub fn of(world: &World) -> Self {
        Self(world.admin())
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: Option<&Value>,
    ) -> Result<Value, kube::Error> {
        let body = body.map_or_else(Vec::new, |body| serde_json::to_vec(body).unwrap());
        let request = Request::builder().method(method).uri(path).header("content-type", content);
        self.0.request(request.body(body).unwrap()).await
    }

    async fn done(&self, method: Method, path: &str, content: &str, body: Option<&Value>) -> Value {
        let sent = self.send(method.clone(), path, content, body).await;
        sent.unwrap_or_else(|error| panic!("{method} {path}: {error:?}"))
    }

    /// `None` for what is not there.
    pub async fn find(&self, path: &str) -> Option<Value> {
        match self.send(Method::GET, path, "application/json", None).await {
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            other => Some(other.unwrap()),
        }
    }

    pub async fn get(&self, path: &str) -> Value {
        self.find(path).await.unwrap_or_else(|| panic!("{path} is not there"))
    }

    pub async fn post(&self, path: &str, body: Value) -> Value {
        self.done(Method::POST, path, "application/json", Some(&body)).await
    }

    /// The status that answers a request that must not be granted.
    pub async fn refused(&self, path: &str, body: &Value) -> kube::core::Status {
        match self.send(Method::POST, path, "application/json", Some(body)).await {
            Err(kube::Error::Api(status)) => *status,
            other => panic!("POST {path}: {other:?}"),
        }
    }

    pub async fn put(&self, path: &str, body: &Value) -> Value {
        self.done(Method::PUT, path, "application/json", Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> Value {
        self.done(Method::DELETE, path, "application/json", None).await
    }

    pub async fn patch(&self, kind: Kind, path: &str, body: Value) -> Value {
        let content = match kind {
            Kind::Merge => "application/merge-patch+json",
            Kind::Strategic => "application/strategic-merge-patch+json",
        };
        self.done(Method::PATCH, path, content, Some(&body)).await
    }

    /// Gets, changes and puts back, again if somebody else was quicker.
    pub async fn update(&self, path: &str, change: impl Fn(&mut Value)) -> Value {
        loop {
            let mut object = self.get(path).await;
            change(&mut object);
            match self.send(Method::PUT, path, "application/json", Some(&object)).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                other => return other.unwrap_or_else(|error| panic!("PUT {path}: {error:?}")),
            }
        }
    }

    /// Waits until what is at the path passes.
    pub async fn until(&self, what: &str, path: &str, test: impl Fn(&Value) -> bool) -> Value {
        let probe = || async { self.find(path).await.filter(|object| test(object)) };
        let state = || async { self.find(path).await.unwrap_or_default().to_string() };
        until(what, probe, state).await
    }

    /// Waits until a list has so many items.
    pub async fn until_count(&self, what: &str, path: &str, count: usize) -> Value {
        self.until(what, path, |list| list["items"].as_array().is_some_and(|items| items.len() == count))
            .await
    }

    pub async fn until_gone(&self, path: &str) {
        let probe = || async { self.find(path).await.is_none().then_some(()) };
        let state = || async { self.find(path).await.unwrap_or_default().to_string() };
        until("gone", probe, state).await;
    }
}

/// The condition of a type, or null.
pub fn condition(object: &Value, type_: &str) -> Value {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|c| c["type"] == type_).unwrap_or_default()
}
