//! Making sure that a container's image is there: policy, pulls in turn, back-off.

use super::credentials::Used;
use super::records::Records;
use crate::configuration::images::ImageSettings;
use crate::cri::{Runtime, RuntimeError, api};
use crate::metrics::{Metric, Metrics};
use crate::pod_facts::backoff::Backoff;
use coracle_client::pace::{Pace, Paced};
use k8s_openapi::api::core::v1::Container;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Semaphore, oneshot};

/// How long a pull that nobody waits for any more may go on before it makes room for others: a registry may hang for good.
/// The runtime leaves nothing behind that hinders the next one.
const UNWANTED_TIMEOUT: Duration = Duration::from_secs(60);

/// Why there is no image, in the words of `state.waiting`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullError {
    pub reason: &'static str,
    pub message: String,
}

/// How an image came to be there.
#[derive(Clone, Debug, PartialEq)]
pub struct Present {
    pub image: api::Image,
    /// `None` if it was there already; else how long the pull took, alone and with waiting for others.
    pub pulled: Option<(Duration, Duration)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Always,
    IfNotPresent,
    Never,
}

impl Policy {
    /// As metrics name it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::IfNotPresent => "ifnotpresent",
            Self::Never => "never",
        }
    }
}

/// The container's policy; without one the tag decides, as the API's default does.
pub fn policy(container: &Container) -> Policy {
    let image = container.image.as_deref().unwrap_or_default();
    match container.image_pull_policy.as_deref() {
        Some("Always") => Policy::Always,
        Some("Never") => Policy::Never,
        Some("IfNotPresent") => Policy::IfNotPresent,
        _ if !image.contains('@') && (tag(image).is_none() || tag(image) == Some("latest")) => Policy::Always,
        _ => Policy::IfNotPresent,
    }
}

fn tag(image: &str) -> Option<&str> {
    let name = image.rsplit('/').next().unwrap_or(image);
    name.split_once(':').map(|(_, tag)| tag)
}

fn failed(message: String) -> PullError {
    PullError { reason: "ErrImagePull", message }
}

/// Pulls for all pods of the node: no more at once, and no more in a second, than the settings allow.
#[derive(Clone)]
pub struct Puller {
    runtime: Arc<dyn Runtime>,
    places: Arc<Semaphore>,
    pace: Option<Arc<Mutex<Paced>>>,
    records: Arc<Records>,
    metrics: Metrics,
}

impl Puller {
    pub fn new(
        runtime: Arc<dyn Runtime>,
        records: Arc<Records>,
        settings: &ImageSettings,
        metrics: Metrics,
    ) -> Self {
        let places = settings.parallel_pulls.unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS);
        let pace = Pace { per_second: settings.pulls_per_second, burst: settings.pull_burst };
        let pace = (pace.per_second > 0).then(|| Arc::new(Mutex::new(Paced::new(pace))));
        let this = Self { runtime, places: Arc::new(Semaphore::new(places)), pace, records, metrics };
        this.count_records();
        this
    }

    /// Tells how much is noted on the disk.
    fn count_records(&self) {
        match self.records.count() {
            Ok((pulled, pulling)) => {
                self.metrics.set(Metric::PullRecords, &[], pulled);
                self.metrics.set(Metric::PullIntents, &[], pulling);
            }
            Err(error) => tracing::debug!(%error, "what is noted of images cannot be counted"),
        }
    }

    /// Forgets images that the runtime, asked at `asked`, has not any more.
    pub fn retain(&self, there: &HashSet<&str>, asked: jiff::Timestamp) -> std::io::Result<()> {
        let done = self.records.retain(there, asked);
        self.count_records();
        done
    }

    /// A place among those that pull at once, and a turn. `None` never: nobody closes the places.
    async fn turn(&self) -> Option<tokio::sync::OwnedSemaphorePermit> {
        let place = self.places.clone().acquire_owned().await.ok();
        if let Some(pace) = &self.pace {
            pace.lock().await.turn().await;
        }
        place
    }

    /// Who may use the images that are there.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Whether the image is in the runtime.
    pub async fn find(&self, image: &str) -> Result<Option<api::Image>, PullError> {
        let failed = |message: String| PullError { reason: "ImageInspectError", message };
        let found = self.runtime.image_status(image).await;
        found.map_err(|e| failed(format!("Failed to inspect image {image:?}: {}", e.detail())))
    }

    /// Pulls the image, and notes with whose credentials. A pull that has begun goes on when its caller has gone, for the
    /// next who wants the image; one that is cut off in the end counts as pulled by nobody known.
    pub async fn pull(
        &self,
        image: &str,
        login: Option<(api::AuthConfig, Used)>,
        sandbox: api::PodSandboxConfig,
    ) -> Result<Present, PullError> {
        let asked = Instant::now();
        let turn = self.turn().await;
        let (mut answer, answered) = oneshot::channel();
        let (this, name) = (self.clone(), image.to_owned());
        tokio::spawn(async move {
            let _turn = turn;
            let abandoned = async {
                answer.closed().await;
                tokio::time::sleep(UNWANTED_TIMEOUT).await;
            };
            let pulled = tokio::select! {
                pulled = this.pull_in_turn(&name, login, sandbox, asked) => Some(pulled),
                () = abandoned => None,
            };
            this.count_records();
            if let Some(pulled) = pulled {
                // The caller may have gone.
                let _ = answer.send(pulled);
            }
        });
        answered.await.unwrap_or_else(|_| Err(failed("the pull broke off".to_owned())))
    }

    async fn pull_in_turn(
        &self,
        image: &str,
        login: Option<(api::AuthConfig, Used)>,
        sandbox: api::PodSandboxConfig,
        asked: Instant,
    ) -> Result<Present, PullError> {
        let (name, started) = (image, Instant::now());
        let (auth, used) = login.unzip();
        let noted = self.records.begin(image);
        noted.map_err(|e| failed(format!("failed to record image pull intent: {e}")))?;
        self.count_records();
        let pulled = self.runtime.pull_image(image, auth, sandbox).await;
        if matches!(pulled, Err(RuntimeError::Failed { .. }))
            && let Err(error) = self.records.failed(image)
        {
            tracing::warn!(image, %error, "the end of the pull is not noted");
        }
        let reference = pulled.map_err(|e| failed(e.to_string()))?;
        let took = (started.elapsed(), asked.elapsed());
        let image = self.find(&reference).await?;
        let image = image.ok_or_else(|| failed(format!("image {reference} vanished after its pull")))?;
        self.metrics.took(Metric::ImagePull, &[of_size(image.size)], took.0);
        if let Err(error) = self.records.pulled(name, &image.id, used.as_ref()) {
            tracing::warn!(image = name, %error, "who pulled the image is not noted, the next pod has to pull it again");
        }
        Ok(Present { image, pulled: Some(took) })
    }
}

/// The label by which pulls of images of about this size are counted; upstream's.
fn of_size(bytes: u64) -> &'static str {
    const MEGA: u64 = 1 << 20;
    const GIGA: u64 = 1 << 30;
    let classes = [
        (10 * MEGA, "0-10MB"),
        (100 * MEGA, "10MB-100MB"),
        (500 * MEGA, "100MB-500MB"),
        (GIGA, "500MB-1GB"),
        (5 * GIGA, "1GB-5GB"),
        (10 * GIGA, "5GB-10GB"),
        (20 * GIGA, "10GB-20GB"),
        (30 * GIGA, "20GB-30GB"),
        (40 * GIGA, "30GB-40GB"),
        (60 * GIGA, "40GB-60GB"),
        (100 * GIGA, "60GB-100GB"),
    ];
    match classes.into_iter().find(|(most, _)| bytes <= *most) {
        _ if bytes == 0 => "N/A",
        Some((_, class)) => class,
        None => "GT100GB",
    }
}

/// What one worker remembers of failed pulls, by image.
#[derive(Default)]
pub struct PullBackoff {
    backoff: Backoff,
    failed: std::collections::HashMap<String, tokio::time::Instant>,
}

impl PullBackoff {
    /// How long the image must still wait.
    pub fn waiting(&self, image: &str, now: tokio::time::Instant) -> Option<Duration> {
        let failed = self.failed.get(image)?;
        self.backoff.waiting(image, *failed, now).map(|(left, _)| left)
    }

    pub fn failed(&mut self, image: &str, now: tokio::time::Instant) {
        self.backoff.next(image, now);
        self.failed.insert(image.to_owned(), now);
    }

    pub fn succeeded(&mut self, image: &str) {
        self.backoff.reset(image);
        self.failed.remove(image);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::images::valid_name;

    #[test]
    fn names_and_policies() {
        for good in
            ["busybox", "a/b:1", "localhost:5000/x/y@sha256:00", "r.example/a-b_c:V1", "docker.io/library/x"]
        {
            assert!(valid_name(good), "{good}");
        }
        for bad in ["", "Upper", "a b", "a/:x", "a:", "/x", "a//b", "ftp://x"] {
            assert!(!valid_name(bad), "{bad}");
        }
        let of = |image: &str, policy: Option<&str>| {
            super::policy(&Container {
                image: Some(image.to_owned()),
                image_pull_policy: policy.map(str::to_owned),
                ..Container::default()
            })
        };
        assert_eq!(of("x", None), Policy::Always);
        assert_eq!(of("r:5000/x:latest", None), Policy::Always);
        assert_eq!(of("r:5000/x:1", None), Policy::IfNotPresent);
        assert_eq!(of("r:5000/x", Some("Never")), Policy::Never);
    }
}
