//! Starting one container: image, configuration, create, start.

use super::containers::Kind;
use super::execute::{Failure, took};
use super::plan::CONFIG_ERROR;
use super::worker::Worker;
use crate::configuration::images::valid_name;
use crate::container::{config, env, env_file, mounts, security, service_env};
use crate::cri::api;
use crate::images::auth;
use crate::images::credentials::Used;
use crate::images::pull::{Policy, PullError, policy};
use crate::images::records::Verdict;
use crate::metrics::Metric;
use coracle_storage::volumes::{ObjectError, Objects};
use k8s_openapi::api::core::v1::Container;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A start that the spec or a missing object spoils is tried again after this; upstream's pod worker back-off.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// How long a container waits for the Services that it is told of while the server is away.
const SERVICES_TIMEOUT: Duration = Duration::from_secs(2);

/// What was found out of an image that has to be there; `None` where nobody asked.
#[derive(Default)]
struct Found {
    present: Option<bool>,
    pull_required: Option<bool>,
}

impl Found {
    fn label(known: Option<bool>) -> &'static str {
        match known {
            None => "unknown",
            Some(true) => "true",
            Some(false) => "false",
        }
    }
}

impl Worker {
    /// The new container's id. What fails has been reported by an event.
    pub(super) async fn create_and_start(
        &mut self,
        kind: Kind,
        spec: &Container,
        attempt: u32,
    ) -> Result<String, Failure> {
        let name = spec.name.as_str();
        let sandbox = self.observed.sandbox().cloned();
        let sandbox = sandbox.ok_or_else(|| Failure::new("ContainerCreating", "", Duration::ZERO))?;
        let sandbox_config = self.sandbox_config(sandbox.attempt);
        let sandbox_config = sandbox_config.map_err(|message| self.refuse(name, CONFIG_ERROR, message))?;
        let image = self.image(spec, &sandbox_config).await?;
        let images = self.volume_images(spec, &sandbox_config).await?;
        let of_volumes = images.len();
        let learned = self.learn_of_recursive_mounts(spec).await;
        learned.map_err(|message| self.refuse(name, CONFIG_ERROR, message))?;
        let config = self.container_config(kind, spec, attempt, (&image, &images)).await;
        let config = config.map_err(|message| self.refuse(name, CONFIG_ERROR, message))?;
        let created = self.calls.create_container(&sandbox.id, config, sandbox_config).await;
        self.count_image_volumes(of_volumes, created.is_ok());
        let id = created.map_err(|e| self.refuse(name, "CreateContainerError", e.detail()))?;
        self.event(Some(name), "Normal", "Created", "Container created");
        let started = self.calls.start_container(&id).await;
        started.map_err(|e| self.refuse(name, "RunContainerError", e.detail()))?;
        self.event(Some(name), "Normal", "Started", "Container started");
        Ok(id)
    }

    fn refuse(&self, name: &str, reason: &str, message: impl Into<String>) -> Failure {
        let message = message.into();
        self.event(Some(name), "Warning", "Failed", format!("Error: {message}"));
        Failure::new(reason, message, RETRY_INTERVAL)
    }

    /// The runtime mounts images when it makes the container.
    fn count_image_volumes(&self, count: usize, mounted: bool) {
        let ended = if mounted { Metric::ImageVolumesMounted } else { Metric::ImageVolumesFailed };
        for metric in [Metric::ImageVolumes, ended].into_iter().cycle().take(2 * count) {
            self.kubelet.metrics.add(metric, &[]);
        }
    }

    /// Makes sure that the image is there, by its policy.
    async fn image(
        &mut self,
        spec: &Container,
        sandbox: &api::PodSandboxConfig,
    ) -> Result<api::Image, Failure> {
        let mut found = Found::default();
        let image = self.ensure_image(spec, sandbox, &mut found).await;
        let labels = [policy(spec).label(), Found::label(found.present), Found::label(found.pull_required)];
        self.kubelet.metrics.add(Metric::EnsureImage, &labels);
        image
    }

    async fn ensure_image(
        &mut self,
        spec: &Container,
        sandbox: &api::PodSandboxConfig,
        found: &mut Found,
    ) -> Result<api::Image, Failure> {
        let name = spec.name.as_str();
        let image = spec.image.clone().unwrap_or_default();
        if !valid_name(&image) {
            let message = format!(
                "Failed to apply default image tag {image:?}: couldn't parse image name: invalid reference format"
            );
            self.event(Some(name), "Warning", "InspectFailed", message.clone());
            return Err(self.refuse(name, "InvalidImageName", message));
        }
        let policy = policy(spec);
        if policy != Policy::Always
            && let Some(present) = self.present(name, &image, policy, found).await?
        {
            return Ok(present);
        }
        found.pull_required = Some(true);
        if let Some(left) = self.pulls.waiting(&image, Instant::now()) {
            return Err(self.back_off_pull(name, &image, left));
        }
        self.pull(name, &image, sandbox).await
    }

    /// The image that is there, if the pod may use it; by the policy Never there is no other.
    async fn present(
        &mut self,
        name: &str,
        image: &str,
        policy: Policy,
        found: &mut Found,
    ) -> Result<Option<api::Image>, Failure> {
        let present = self.kubelet.puller.find(image).await.map_err(|e| self.pull_failed(name, image, e))?;
        let there = present.is_some();
        found.present = Some(there);
        let usable = match present {
            Some(present) => self.accessible(image, present).await,
            None => None,
        };
        found.pull_required = there.then_some(usable.is_none());
        if usable.is_some() {
            let text = format!(
                "Container image {image:?} already present on machine and can be accessed by the pod"
            );
            self.event(Some(name), "Normal", "Pulled", text);
        } else if policy == Policy::Never {
            let why = if there {
                "present with pull policy of Never but does not have the proper credentials"
            } else {
                "not present with pull policy of Never"
            };
            let message = format!("Container image {image:?} is {why}");
            self.event(Some(name), "Warning", "ErrImageNeverPull", message.clone());
            return Err(self.refuse(name, "ErrImageNeverPull", message));
        }
        Ok(usable)
    }

    async fn pull(
        &mut self,
        name: &str,
        image: &str,
        sandbox: &api::PodSandboxConfig,
    ) -> Result<api::Image, Failure> {
        self.event(Some(name), "Normal", "Pulling", format!("Pulling image {image:?}"));
        let login = self.credentials(image).await;
        let pulled = self.kubelet.puller.pull(image, login, sandbox.clone()).await;
        let present = pulled.map_err(|error| self.pull_failed(name, image, error))?;
        self.pulls.succeeded(image);
        let (alone, waited) = present.pulled.unwrap_or_default();
        self.start.pulled(waited);
        let text = format!(
            "Successfully pulled image {image:?} in {} ({} including waiting). Image size: {} bytes.",
            took(alone),
            took(waited),
            present.image.size
        );
        self.event(Some(name), "Normal", "Pulled", text);
        Ok(present.image)
    }

    /// Makes sure of the images that the container mounts: by volume, what the pod calls it and its id.
    async fn volume_images(
        &mut self,
        spec: &Container,
        sandbox: &api::PodSandboxConfig,
    ) -> Result<BTreeMap<String, (String, String)>, Failure> {
        let volumes = self.pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
        let mounted = |name: &str| spec.volume_mounts.iter().flatten().any(|m| m.name == name);
        let wanted: Vec<(String, Container)> = volumes
            .filter(|volume| mounted(&volume.name))
            .filter_map(|volume| {
                let source = volume.image.as_ref()?;
                let like = Container {
                    name: spec.name.clone(),
                    image: source.reference.clone(),
                    image_pull_policy: source.pull_policy.clone(),
                    ..Container::default()
                };
                Some((volume.name.clone(), like))
            })
            .collect();
        let mut images = BTreeMap::new();
        for (volume, like) in wanted {
            let image = self.image(&like, sandbox).await?;
            images.insert(volume, (like.image.unwrap_or_default(), image.id));
        }
        Ok(images)
    }

    fn pull_failed(&mut self, name: &str, image: &str, error: PullError) -> Failure {
        self.pulls.failed(image, Instant::now());
        let text = format!("Failed to pull image {image:?}: {}", error.message);
        self.event(Some(name), "Warning", "Failed", text);
        self.event(Some(name), "Warning", "Failed", format!("Error: {}", error.reason));
        // The next attempt after a moment finds the back-off and reports that.
        Failure::new(error.reason, error.message, Duration::from_secs(1))
    }

    fn back_off_pull(&self, name: &str, image: &str, left: Duration) -> Failure {
        let text = format!("Back-off pulling image {image:?}");
        self.event(Some(name), "Normal", "BackOff", text.clone());
        self.event(Some(name), "Warning", "Failed", "Error: ImagePullBackOff");
        Failure::new("ImagePullBackOff", text, left)
    }

    /// The image that is there, if the pod may use it without pulling it itself.
    async fn accessible(&self, image: &str, found: api::Image) -> Option<api::Image> {
        let verdict = self.kubelet.puller.records().judge(image, &found);
        let admitted = verdict.admits(None) || {
            let login = self.credentials(image).await;
            verdict.admits(login.as_ref().map(|(_, used)| used))
        };
        let result = match verdict {
            Verdict::Open => "credentialPolicyAllowed",
            Verdict::Known(_) if admitted => "credentialRecordFound",
            Verdict::Known(_) => "mustAuthenticate",
        };
        self.kubelet.metrics.add(Metric::MustPull, &[result]);
        admitted.then_some(found)
    }

    async fn credentials(&self, image: &str) -> Option<(api::AuthConfig, Used)> {
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut secrets = Vec::new();
        for reference in self.pod.spec.iter().flat_map(|s| s.image_pull_secrets.iter().flatten()) {
            match self.kubelet.objects.secret(namespace, &reference.name).await {
                Ok(secret) => secrets.push(secret),
                Err(error) => {
                    let text = format!(
                        "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                        reference.name
                    );
                    tracing::debug!(%error, "pull secret not read");
                    self.event(None, "Warning", "FailedToRetrieveImagePullSecret", text);
                }
            }
        }
        auth::for_image(image, &secrets)
    }

    async fn container_config(
        &self,
        kind: Kind,
        spec: &Container,
        attempt: u32,
        (image, images): (&api::Image, &BTreeMap<String, (String, String)>),
    ) -> Result<api::ContainerConfig, String> {
        security::check_non_root(&self.pod, spec, Some(image))?;
        let env = self.environment(spec).await?;
        let (volumes, mounted) = (&self.kubelet.volumes, &self.mounted);
        let recursive = self.recursive_mounts;
        let volumes = mounts::PodVolumes { volumes, uid: &self.uid, mounted, images, recursive };
        let mut all = mounts::of_volumes(&volumes, spec, &env)?;
        let devices = mounts::devices(&volumes, spec)?;
        let hosts = self.write_hosts()?;
        all.extend(mounts::etc_hosts(spec, &hosts));
        let pod_dir = self.kubelet.volumes.pod_dir(&self.uid);
        let log = mounts::termination_log(&pod_dir, spec, attempt);
        all.push(log.map_err(|e| format!("cannot make the termination log: {e}"))?);
        let target = self.target(kind, &spec.name)?;
        let cdi_devices = self.kubelet.dra.cdi_devices(&self.wanted, spec).map_err(|e| e.to_string())?;
        let given = self.given(&spec.name).await?;
        let users = self.users()?;
        let all = all.into_iter().map(|mount| match users {
            Some(users) => users.shown(mount),
            None => mount,
        });
        Ok(config::config(config::ContainerInput {
            pod: &self.pod,
            container: spec,
            attempt,
            image,
            env,
            mounts: all.collect(),
            devices,
            cdi_devices,
            given,
            target: target.as_deref(),
            users,
            node: self.node_for(&spec.name),
            confinement: &self.kubelet.confinement,
        }))
    }

    /// Asks the runtime what it can, if the container wants mounts to be read-only all the way down.
    pub(super) async fn learn_of_recursive_mounts(&mut self, spec: &Container) -> Result<(), String> {
        if spec.volume_mounts.iter().flatten().all(|mount| mount.recursive_read_only.is_none()) {
            return Ok(());
        }
        let handler = self.runtime_handler().await?;
        let status = self.kubelet.runtime.status().await.map_err(|e| e.to_string())?;
        let mut handlers = status.runtime_handlers.iter().filter(|known| known.name == handler);
        self.recursive_mounts =
            handlers.any(|known| known.features.as_ref().is_some_and(|able| able.recursive_read_only_mounts));
        Ok(())
    }

    /// The container whose processes an ephemeral container sees.
    fn target(&self, kind: Kind, name: &str) -> Result<Option<String>, String> {
        if kind != Kind::Ephemeral {
            return Ok(None);
        }
        let spec = self.pod.spec.as_ref();
        let own = spec.and_then(|s| s.ephemeral_containers.as_ref()?.iter().find(|c| c.name == name));
        let Some(target) = own.and_then(|c| c.target_container_name.as_deref()).filter(|t| !t.is_empty())
        else {
            return Ok(None);
        };
        let found = self.observed.running().find(|c| c.name == target);
        found.map(|c| Some(c.id.clone())).ok_or_else(|| format!("unable to find target container {target:?}"))
    }

    /// Services are known before a container is told of them, unless the server is away: then it is not waited for.
    async fn services_known(&self) {
        if self.kubelet.last_seen.is_heard() {
            return self.kubelet.services.synced().await;
        }
        let patience = if self.kubelet.config.standalone { Duration::ZERO } else { SERVICES_TIMEOUT };
        // What is known by then counts.
        let _ = tokio::time::timeout(patience, self.kubelet.services.synced()).await;
    }

    async fn environment(&self, spec: &Container) -> Result<Vec<(String, String)>, String> {
        let pod = self.pod_with_status();
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let (config_maps, secrets) = env::references(spec);
        let mut objects = env::Objects::default();
        for name in config_maps {
            let object = self.kubelet.objects.config_map(&namespace, &name).await;
            if let Some(object) = existing(object)? {
                objects.config_maps.insert(name, object);
            }
        }
        for name in secrets {
            let object = self.kubelet.objects.secret(&namespace, &name).await;
            if let Some(object) = existing(object)? {
                objects.secrets.insert(name, object);
            }
        }
        for file in env::files(spec) {
            if let Some(mounted) = self.mounted.get(&file.0) {
                objects.files.insert(file.clone(), env_file::read(&mounted.path, &file.1));
            }
        }
        self.services_known().await;
        let links = pod.spec.as_ref().and_then(|s| s.enable_service_links).unwrap_or(true);
        let services = service_env::variables(&self.kubelet.services.list(), &namespace, links);
        let allocatable = &self.kubelet.allocatable;
        let input = env::Input { pod: &pod, container: spec, objects: &objects, services, allocatable };
        env::environment(&input).map_err(|e| e.to_string())
    }
}

fn existing<T>(object: Result<Arc<T>, ObjectError>) -> Result<Option<Arc<T>>, String> {
    match object {
        Ok(object) => Ok(Some(object)),
        Err(ObjectError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}
