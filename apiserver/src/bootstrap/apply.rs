//! Writing the plan through the registry, so that defaults, validation and allocation hold for it too.

use super::cluster::{self, SERVICE_CIDRS};
use super::plan::{forsaken, plan_of};
use super::{BootstrapConfig, Planned, addresses, plan};
use coracle_api::{ApiError, UserInfo, catalogue};
use coracle_registry::{DeleteOptions, Part, Registry, Scope, WriteOptions};
use futures::future::join_all;
use parking_lot::Mutex;

/// The first object that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("bootstrap {resource} {namespace}/{name}")]
pub struct BootstrapError {
    pub resource: &'static str,
    pub namespace: String,
    pub name: String,
    #[source]
    pub source: ApiError,
}

/// Makes the cluster as [`super`] describes it; run it before the server is ready. Safe to repeat, also by several
/// servers at once. Returns how many objects of the plan were
/// written.
///
/// All writes of a stage are under way together, so that the store commits them in a few groups.
pub async fn apply(registry: &Registry, config: &BootstrapConfig) -> Result<usize, BootstrapError> {
    let first = |planned: &Planned| matches!(planned.resource, "namespaces." | SERVICE_CIDRS);
    let (first, rest): (Vec<_>, Vec<_>) = plan(config, &*registry.cache).into_iter().partition(first);
    let user = UserInfo::authenticated("system:apiserver", &[coracle_access::authz::MASTERS]);
    let mut written = 0;
    for stage in [first, rest] {
        written += write_all(registry, &user, &stage).await?;
    }
    if let Some(class) = forsaken(config, &*registry.cache) {
        remove(registry, &user, class).await?;
    }
    let mut last = plan_of(vec![cluster::service_cidr(config)], &*registry.cache);
    last.extend(addresses::missing(&*registry.cache));
    write_all(registry, &user, &last).await?;
    Ok(written)
}

async fn write_all(registry: &Registry, user: &UserInfo, stage: &[Planned]) -> Result<usize, BootstrapError> {
    let results = join_all(stage.iter().map(|planned| write(registry, user, planned))).await;
    for (planned, result) in stage.iter().zip(results) {
        result.map_err(|source| failed(planned, source))?;
    }
    Ok(stage.len())
}

fn text<'a>(planned: &'a Planned, field: &str) -> &'a str {
    planned.object["metadata"][field].as_str().unwrap_or_default()
}

fn failed(planned: &Planned, source: ApiError) -> BootstrapError {
    BootstrapError {
        resource: planned.resource,
        namespace: text(planned, "namespace").to_owned(),
        name: text(planned, "name").to_owned(),
        source,
    }
}

fn scope<'a>(registry: &'a Registry, user: &'a UserInfo, of: &'a Planned) -> Result<Scope<'a>, ApiError> {
    let resource = catalogue::by_storage_key(of.resource)
        .ok_or_else(|| ApiError::internal(format!("{} is not served", of.resource)))?;
    Ok(Scope {
        registry,
        resource,
        strategy: coracle_strategy::for_resource(&resource.group, &resource.plural).into(),
        namespace: text(of, "namespace"),
        name: if of.replaces.is_some() { text(of, "name") } else { "" },
        subresource: "",
        user,
        now: (registry.clock)(),
        warnings: Mutex::default(),
    })
}

/// Deletes what nobody has changed since it was read.
async fn remove(registry: &Registry, user: &UserInfo, gone: Planned) -> Result<(), BootstrapError> {
    let version = gone.object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    let options = DeleteOptions { resource_version: version, ..DeleteOptions::default() };
    let deleted = async { scope(registry, user, &gone)?.delete(&options).await.map(drop) };
    match deleted.await {
        Err(error) if matches!(error.reason, "Conflict" | "NotFound") => Ok(()),
        outcome => outcome.map_err(|source| failed(&gone, source)),
    }
}

async fn write(registry: &Registry, user: &UserInfo, planned: &Planned) -> Result<(), ApiError> {
    let scope = scope(registry, user, planned)?;
    let options = WriteOptions { field_manager: "coracle".to_owned(), ..WriteOptions::default() };
    if planned.replaces.is_none() {
        return match scope.create(planned.object.clone(), &options).await {
            // Another server was quicker.
            Err(error) if error.reason == "AlreadyExists" => Ok(()),
            outcome => outcome.map(|_| ()),
        };
    }
    let updated = scope.update(Part::Internal, &options, |_| Ok(planned.object.clone())).await;
    match updated {
        Err(error) if error.reason == "Conflict" => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}
