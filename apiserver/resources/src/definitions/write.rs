//! Writes of a definition's status, as a client of this server.

use super::DEFINITIONS;
use crate::cache::Cache;
use axum::Router;
use axum::body::Body;
use coracle_api::{Object, UserInfo};
use coracle_requests::value::{name, str_at};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt;

/// Upstream's manager of the fields that these controllers write.
const MANAGER: &str = "kube-apiserver";

/// Attempts of a write that somebody else keeps overtaking; every failure means that another write was successful.
const ATTEMPTS: usize = 50;
/// Between attempts: what the loser of a race waits for is a commit that has happened already.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Clone)]
pub struct Writer {
    pub cache: Arc<Cache>,
    pub service: Router,
}

/// What became of a write.
#[derive(Debug, PartialEq, Eq)]
pub enum Wrote {
    Done,
    /// Somebody else was quicker; the event of that leads back here.
    Overtaken,
    Gone,
}

impl Writer {
    /// Writes the status of an object as it was read. Its finalizers go with it, as upstream's status strategy allows.
    pub async fn status(&self, object: &Object) -> Result<Wrote, String> {
        let path = format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}/status?fieldManager={MANAGER}",
            name(object)
        );
        let mut request = Request::put(&path)
            .header("content-type", "application/json")
            .body(Body::from(object.to_string()))
            .map_err(|e| e.to_string())?;
        request.extensions_mut().insert(UserInfo::authenticated("system:apiserver", &[coracle_pki::MASTERS]));
        let Ok(response) = self.service.clone().oneshot(request).await;
        match response.status() {
            status if status.is_success() => Ok(Wrote::Done),
            StatusCode::CONFLICT => Ok(Wrote::Overtaken),
            StatusCode::NOT_FOUND => Ok(Wrote::Gone),
            status => {
                let text = response.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes();
                Err(format!("{path}: {status}: {}", String::from_utf8_lossy(&text)))
            }
        }
    }

    /// Reads the definition of this uid, changes it and writes it, until nobody comes in between.
    pub async fn change(
        &self,
        definition: &str,
        uid: &str,
        change: impl Fn(&mut Object) + Send + Sync,
    ) -> Result<Wrote, String> {
        for _ in 0..ATTEMPTS {
            let Some(cached) = self.cache.find(DEFINITIONS, "", definition) else { return Ok(Wrote::Gone) };
            let mut object = (*cached.decode()).clone();
            if str_at(&object, "metadata.uid") != uid {
                return Ok(Wrote::Gone);
            }
            change(&mut object);
            match self.status(&object).await? {
                Wrote::Overtaken => tokio::time::sleep(RETRY_INTERVAL).await,
                other => return Ok(other),
            }
        }
        Err(format!("{definition}: somebody else changes it all the time"))
    }
}
