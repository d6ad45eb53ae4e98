//! Chart archives: which release one is, and the program helm that installs, upgrades and uninstalls it.
//!
//! No crate that is kept up renders Go templates with sprig and helm's own functions as helm does, and hooks, revisions and
//! `helm list` are what users of charts expect: so helm itself does it, where the machine has it.

use crate::MANAGER;
use crate::documents::{Chart, Id};
use crate::outcome::Outcome;
use coracle_api::error::chain;
use coracle_api::releases::{self, HASH};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::io;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

/// Helm's own limit for a release's name.
const LONGEST_NAME: usize = 53;
/// What helm gives each of a chart's hooks.
const HOOK_TIMEOUT: &str = "5m0s";
/// Longest that helm may be at work, with some hooks: by then it has gone wrong.
const HELM_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// How often it is looked whether helm is still at work.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes of what helm says that are told: its last words say what was wrong.
const TOLD: usize = 1024;

/// `<release>.helm.yaml` beside an archive.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// `default` unless said; made if it is not there.
    pub namespace: Option<String>,
    /// As in a file for helm's `--values`.
    #[serde(default)]
    pub values: Map<String, Value>,
}

impl Settings {
    /// # Errors
    /// What is wrong with the text.
    pub fn read(text: &str) -> Result<Self, String> {
        let read = coracle_api::yaml::document(text.as_bytes()).map_err(|error| error.to_string())?;
        if read.value.is_null() {
            return Ok(Self::default());
        }
        serde_json::from_value(read.value).map_err(|error| error.to_string())
    }
}

/// `web` of `web-1.2.3.tgz`, which is how helm names archives: the next version's is of the same release.
///
/// # Errors
/// What remains is no name that helm takes.
pub fn release(archive: &str) -> Result<String, String> {
    let lower = archive.to_ascii_lowercase();
    let stem = lower.strip_suffix(".tgz").or_else(|| lower.strip_suffix(".tar.gz")).unwrap_or(&lower);
    let versioned = stem.match_indices('-').find(|(at, _)| is_version(&stem[at + 1..]));
    let name = versioned.map_or(stem, |(at, _)| &stem[..at]);
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ends_plainly = !name.starts_with(['-', '.']) && !name.ends_with(['-', '.']);
    if !name.is_empty() && name.len() <= LONGEST_NAME && ends_plainly && name.chars().all(plain) {
        return Ok(name.to_owned());
    }
    Err(format!(
        "{name:?} is no name of a release: at most {LONGEST_NAME} lower-case letters, digits, - and ."
    ))
}

/// Three numbers, or more behind them.
fn is_version(text: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    let text = text.strip_prefix('v').unwrap_or(text);
    let core = text.split(['-', '+']).next().unwrap_or_default();
    core.split('.').count() == 3 && core.split('.').all(number)
}

/// # Errors
/// As [`release`].
pub fn id(archive: &str, settings: &Settings) -> Result<Id, String> {
    Ok(Id::of_release(settings.namespace.clone().unwrap_or_default(), release(archive)?))
}

/// How helm is called.
#[derive(Clone, Debug)]
pub struct Helm {
    /// A name to be looked for on the PATH, or a path.
    pub program: PathBuf,
    /// The cluster, and who helm is there.
    pub kubeconfig: PathBuf,
    /// Where helm may keep what it wants to find again.
    pub home: PathBuf,
}

/// The newest revision of a release.
#[derive(Debug, PartialEq, Eq)]
struct Revision {
    number: u32,
    status: String,
    hash: String,
    /// Since when it is there.
    age: Duration,
}

impl Revision {
    /// `None` where it is not of this directory.
    fn of(metadata: &ObjectMeta, now: Timestamp) -> Option<Self> {
        let label = |name: &str| metadata.labels.as_ref()?.get(name).cloned();
        let number = label("version")?.parse().ok()?;
        let age = metadata.creation_timestamp.as_ref().map(|made| now.duration_since(made.0));
        let age = age.and_then(|age| Duration::try_from(age).ok()).unwrap_or_default();
        Some(Self { number, status: label("status")?, hash: label(HASH)?, age })
    }

    /// Helm has begun with it. Whoever calls it may have been killed, and it not.
    fn is_pending(&self) -> bool {
        self.status.starts_with("pending-")
    }
}

/// What helm keeps of a release.
#[derive(Debug, Default, PartialEq, Eq)]
struct Kept {
    newest: Option<Revision>,
    /// Whether any revision has ever been whole: only such a release can be upgraded or rolled back.
    was_deployed: bool,
    /// Secrets that helm would believe, too, and that are not of this directory.
    foreign: Vec<String>,
}

impl Kept {
    /// Why helm must not be asked to do anything with the release: what others have written would be done with an
    /// administrator's rights.
    fn foreign(&self) -> Result<(), String> {
        match (&self.newest, self.foreign.is_empty()) {
            (_, true) => Ok(()),
            (None, false) => Err("somebody else has installed a release of this name".to_owned()),
            (Some(_), false) => Err(format!(
                "somebody else has changed the release: helm is not asked to do anything with it while there is the Secret {}",
                self.foreign.join(", ")
            )),
        }
    }
}

/// Makes a release what its archive says. One that is that already is left alone, also after a restart.
pub async fn apply(helm: &Helm, client: &Client, id: &Id, chart: &Chart) -> Outcome {
    let namespace = id.namespace_or_default();
    let failed = |why: String| Outcome::Failed(format!("{id}: {why}"));
    let kept = match Box::pin(taken(client, namespace, &id.name)).await {
        Ok(kept) => kept,
        Err(why) => return failed(why),
    };
    let label = chart.hash.get(..32).unwrap_or(&chart.hash);
    match &kept.newest {
        Some(newest) if newest.status == "deployed" && newest.hash == label => return Outcome::Applied,
        Some(newest) if newest.is_pending() && newest.age < HELM_TIMEOUT => {
            let left = (HELM_TIMEOUT - newest.age).as_secs() / 60 + 1;
            return Outcome::Waiting(format!(
                "{id}: helm has begun revision {} and may still be at work; in {left} minutes it is taken back",
                newest.number
            ));
        }
        _ => {}
    }
    if let Err(error) = mend(helm, namespace, &id.name, &kept).await {
        return failed(error.to_string());
    }
    let archive = chart.archive.display().to_string();
    let labels = format!("{HASH}={label}");
    let mut arguments = vec!["upgrade", "--install", &id.name, &archive, "--namespace", namespace];
    arguments.extend(["--create-namespace", "--values", "-", "--labels", &labels, "--timeout", HOOK_TIMEOUT]);
    match call(helm, &arguments, &Value::Object(chart.values.clone()).to_string()).await {
        Ok(()) => Outcome::Applied,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Outcome::Waiting(format!(
            "{id}: chart archives are installed by the program helm, which is not on the server's PATH"
        )),
        Err(error) => failed(error.to_string()),
    }
}

/// Uninstalls a release, if it is ours. Hooks of the chart's end are heard.
///
/// # Errors
/// Why it is still there.
pub async fn remove(helm: &Helm, client: &Client, id: &Id) -> Result<(), String> {
    let namespace = id.namespace_or_default();
    let known = kept(client, namespace, &id.name).await?;
    if known.newest.is_some() {
        Box::pin(guarded(client, namespace, &id.name, known)).await?;
        let arguments = ["uninstall", &id.name, "--namespace", namespace, "--timeout", HOOK_TIMEOUT];
        call(helm, &arguments, "").await.map_err(|error| error.to_string())?;
    }
    mark(client, namespace, &id.name, false).await
}

/// [`guarded`], of what is kept now.
async fn taken(client: &Client, namespace: &str, name: &str) -> Result<Kept, String> {
    guarded(client, namespace, name, kept(client, namespace, name).await?).await
}

/// What helm keeps of a release, from when on only administrators can change it; `known` is what it kept before.
///
/// # Errors
/// Somebody else has a part in it.
async fn guarded(client: &Client, namespace: &str, name: &str, known: Kept) -> Result<Kept, String> {
    // Before it is marked, so that nobody else's release is kept from its owner; and once more behind the mark.
    known.foreign()?;
    mark(client, namespace, name, true).await?;
    let kept = kept(client, namespace, name).await?;
    if let Err(why) = kept.foreign() {
        mark(client, namespace, name, false).await?;
        return Err(why);
    }
    Ok(kept)
}

/// Says on the namespace whether the release is one of this directory. It is made where it shall be, as helm makes it, and
/// before helm is asked: nobody may write there first.
async fn mark(client: &Client, namespace: &str, name: &str, kept: bool) -> Result<(), String> {
    let api: Api<Namespace> = Api::all(client.clone());
    let value = if kept { json!("") } else { Value::Null };
    let patch = json!({ "metadata": { "annotations": { releases::kept(name): value } } });
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    match api.patch(namespace, &params, &Patch::Merge(&patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 && !kept => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let meta = json!({ "name": namespace, "labels": { "name": namespace }, "annotations": { releases::kept(name): "" } });
            let made: Namespace =
                serde_json::from_value(json!({ "metadata": meta })).map_err(|error| error.to_string())?;
            api.create(&PostParams::default(), &made).await.map(drop).map_err(|error| chain(&error))
        }
        done => done.map(drop).map_err(|error| chain(&error)),
    }
}

/// Takes back what helm had begun when it was killed, and a first installation that failed: helm refuses every other one
/// until somebody does.
async fn mend(helm: &Helm, namespace: &str, name: &str, kept: &Kept) -> io::Result<()> {
    let Some(newest) = &kept.newest else { return Ok(()) };
    let verb = match kept.was_deployed {
        true if newest.is_pending() => "rollback",
        false if newest.is_pending() || newest.status == "failed" => "uninstall",
        _ => return Ok(()),
    };
    tracing::info!(release = name, namespace, status = %newest.status, verb, "what helm did not finish is taken back");
    call(helm, &[verb, name, "--namespace", namespace, "--no-hooks"], "").await
}

/// From where helm keeps releases: a Secret each revision.
async fn kept(client: &Client, namespace: &str, name: &str) -> Result<Kept, String> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = secrets.list_metadata(&ListParams::default()).await.map_err(|error| chain(&error))?;
    Ok(kept_of(name, found.items.iter().map(|secret| &secret.metadata), Timestamp::now()))
}

/// Helm goes by labels, and for single revisions by the name.
fn kept_of<'a>(release: &str, secrets: impl Iterator<Item = &'a ObjectMeta>, now: Timestamp) -> Kept {
    let (mut revisions, mut foreign) = (Vec::new(), Vec::new());
    for secret in secrets {
        let label = |label: &str| secret.labels.as_ref()?.get(label).map(String::as_str);
        let name = secret.name.as_deref().unwrap_or_default();
        if releases::taken_for(name, label).any(|taken| taken == release) {
            match Revision::of(secret, now) {
                Some(revision) => revisions.push(revision),
                None => foreign.push(name.to_owned()),
            }
        }
    }
    Kept { foreign, ..judged(revisions.into_iter()) }
}

fn judged(revisions: impl Iterator<Item = Revision>) -> Kept {
    let mut kept = Kept::default();
    for revision in revisions {
        kept.was_deployed |= revision.status == "deployed" || revision.status == "superseded";
        if kept.newest.as_ref().is_none_or(|newest| newest.number < revision.number) {
            kept.newest = Some(revision);
        }
    }
    kept
}

/// Runs helm to its end, or to the end of its time.
async fn call(helm: &Helm, arguments: &[&str], input: &str) -> io::Result<()> {
    let child = Command::new(&helm.program)
        .args(arguments)
        .env("KUBECONFIG", &helm.kubeconfig)
        .env("HELM_DRIVER", "secret")
        .env("HELM_CACHE_HOME", helm.home.join("cache"))
        .env("HELM_CONFIG_HOME", helm.home.join("config"))
        .env("HELM_DATA_HOME", helm.home.join("data"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = tokio::time::timeout(HELM_TIMEOUT, looked_at(ended(child, input))).await;
    let output =
        output.unwrap_or_else(|_| Err(io::Error::other("helm was at work for a quarter of an hour")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let from = text.char_indices().rev().nth(TOLD).map_or(0, |(at, _)| at);
    Err(io::Error::other(format!("helm: {}: {}", output.status, &text[from..])))
}

async fn ended(mut child: Child, input: &str) -> io::Result<Output> {
    if let Some(mut stdin) = child.stdin.take() {
        // It may end without reading; its status says why.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    child.wait_with_output().await
}

/// Wakes up now and then, so that waiting for another program is no hang.
async fn looked_at<T>(work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        if let Ok(done) = tokio::time::timeout(LOOK_INTERVAL, &mut work).await {
            return done;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    #[test]
    fn every_version_of_an_archive_is_of_one_release() {
        for (archive, name) in [
            ("web-1.2.3.tgz", "web"),
            ("kube-prometheus-stack-58.0.0.tgz", "kube-prometheus-stack"),
            ("cert-manager-v1.16.0-beta.1.tgz", "cert-manager"),
            ("a-2-b-0.1.0+build.5.tar.gz", "a-2-b"),
            ("plain.tgz", "plain"),
        ] {
            assert_eq!(release(archive), Ok(name.to_owned()), "{archive}");
        }
        for archive in
            ["-1.0.0.tgz", "a_b-1.0.0.tgz", ".tgz", "ä-1.0.0.tgz", &format!("{}.tgz", "x".repeat(54))]
        {
            assert!(release(archive).is_err(), "{archive}");
        }
    }

    fn metadata(number: &str, status: &str, hash: Option<&str>) -> ObjectMeta {
        let labels = [("version", Some(number)), ("status", Some(status)), (HASH, hash)];
        let labels =
            labels.iter().filter_map(|(name, value)| Some(((*name).to_owned(), (*value)?.to_owned())));
        let made = Timestamp::from_second(1000).unwrap();
        ObjectMeta {
            labels: Some(labels.collect()),
            creation_timestamp: Some(Time(made)),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn the_newest_revision_counts_and_any_whole_one_can_be_gone_back_to() {
        let now = Timestamp::from_second(1060).unwrap();
        let revision =
            |number: &str, status: &str| Revision::of(&metadata(number, status, Some("h")), now).unwrap();
        let all = [revision("2", "superseded"), revision("10", "pending-upgrade"), revision("9", "failed")];
        let kept = judged(all.into_iter());
        let newest = kept.newest.unwrap();
        assert_eq!((newest.number, newest.age, kept.was_deployed), (10, Duration::from_secs(60), true));
        assert!(newest.is_pending() && !revision("1", "failed").is_pending());
        assert!(!judged([revision("1", "failed")].into_iter()).was_deployed);
        assert_eq!(Revision::of(&metadata("3", "deployed", None), now), None);
        assert_eq!(Revision::of(&metadata("x", "deployed", Some("h")), now), None);
    }

    #[test]
    fn what_others_have_written_of_a_release_is_told_from_ours() {
        let now = Timestamp::from_second(1060).unwrap();
        let secret = |name: &str, mut metadata: ObjectMeta, release: &str| {
            metadata.name = Some(name.to_owned());
            let labels = metadata.labels.get_or_insert_default();
            labels.extend([("owner", "helm"), ("name", release)].map(|(k, v)| (k.to_owned(), v.to_owned())));
            metadata
        };
        let ours = secret("sh.helm.release.v1.web.v1", metadata("1", "deployed", Some("h")), "web");
        let labelled = secret("x", metadata("7", "deployed", None), "web");
        let named = ObjectMeta { name: Some("sh.helm.release.v1.web.v3".into()), ..ObjectMeta::default() };
        let other = secret("sh.helm.release.v1.db.v1", metadata("1", "deployed", None), "db");
        let of = |secrets: &[&ObjectMeta]| kept_of("web", secrets.iter().copied(), now);
        let alone = of(&[&ours, &other]);
        assert_eq!((alone.newest.as_ref().unwrap().number, alone.foreign()), (1, Ok(())));
        let taken = of(&[&labelled]).foreign().unwrap_err();
        assert_eq!(taken, "somebody else has installed a release of this name");
        for (foreign, name) in [(&labelled, "x"), (&named, "sh.helm.release.v1.web.v3")] {
            let told = of(&[&ours, foreign]).foreign().unwrap_err();
            assert!(
                told.starts_with("somebody else has changed the release") && told.ends_with(name),
                "{told}"
            );
        }
    }

    #[tokio::test]
    async fn helm_is_heard_and_what_it_does_not_read_holds_nobody_up() {
        let helm = |program: &str| Helm { program: program.into(), kubeconfig: "k".into(), home: "h".into() };
        let long = "x".repeat(1 << 20);
        let script = "echo $KUBECONFIG $HELM_DRIVER >&2; exit 3";
        let error = call(&helm("sh"), &["-c", script], &long).await.unwrap_err();
        assert_eq!(error.to_string(), "helm: exit status: 3: k secret");
        call(&helm("sh"), &["-c", "cat >/dev/null"], &long).await.unwrap();
        let missing = call(&helm("/nowhere/helm"), &[], "").await.unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn settings_have_two_fields() {
        let read = Settings::read("namespace: apps\nvalues: {replicas: 2}\n").unwrap();
        assert_eq!((read.namespace.as_deref(), read.values["replicas"].as_i64()), (Some("apps"), Some(2)));
        assert_eq!(Settings::read("# nothing\n"), Ok(Settings::default()));
        assert!(Settings::read("replicas: 2\n").unwrap_err().contains("unknown field `replicas`"));
        assert!(Settings::read("[").is_err());
    }
}
