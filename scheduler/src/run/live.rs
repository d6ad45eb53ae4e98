//! The configuration in the ConfigMap `kube-scheduler-config` of kube-system: read when it changes, refused when it is
//! wrong.

use super::extender::Extenders;
use crate::config::{Config, Mistake, Mistakes, Parsed};
use crate::plugins::Registry;
use coracle_client::{CONFIGURATION_NAMESPACE, Configured, LiveConfiguration, Recorder};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use std::collections::BTreeMap;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const NAME: &str = "kube-scheduler-config";
const KEY: &str = "config.yaml";

/// What stands there until somebody writes something else: every default.
const DEFAULT: &str = "\
# The scheduler takes every change of this in at once. A mistake is told in an event of this ConfigMap, and the last
# configuration without one stays in force.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 0
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 10
profiles:
- schedulerName: default-scheduler
";

/// Follows the ConfigMap until `stop` is cancelled; the receiver holds the newest configuration that can run, `None`
/// before there is one.
pub fn follow(
    client: Client,
    registry: Registry,
    stop: CancellationToken,
) -> watch::Receiver<Option<Config>> {
    let (sender, receiver) = watch::channel(None);
    tokio::spawn(async move {
        let _ = stop.run_until_cancelled(follow_until_told(client, registry, sender)).await;
    });
    receiver
}

async fn follow_until_told(client: Client, registry: Registry, sender: watch::Sender<Option<Config>>) {
    let recorder = Recorder::new(client.clone(), "kube-scheduler", "");
    let mut live = LiveConfiguration::new(client.clone(), NAME, text_of);
    loop {
        let configured = live.next().await;
        match &configured.read {
            Some(text) => take(&configured, text, &registry, &recorder, &sender),
            None if write_default(&client).await => {}
            None => live.forget(),
        }
    }
}

/// The usual key, or the only one.
fn text_of(map: &ConfigMap) -> String {
    let data = map.data.clone().unwrap_or_default();
    let only = || data.values().next().filter(|_| data.len() == 1);
    data.get(KEY).or_else(only).cloned().unwrap_or_default()
}

/// A configuration that can run: whatever its extenders are reached with is there too.
fn read(text: &str, registry: &Registry) -> Result<Parsed, Mistakes> {
    let parsed = Config::parse(text, registry)?;
    let reached = Extenders::new(&parsed.config.extenders);
    reached.map(|_| parsed).map_err(|(path, why)| Mistakes(vec![Mistake { path, why }]))
}

fn take(
    configured: &Configured<String>,
    text: &str,
    registry: &Registry,
    recorder: &Recorder,
    sender: &watch::Sender<Option<Config>>,
) {
    let parsed = match read(text, registry) {
        Ok(parsed) => parsed,
        Err(mistakes) => return configured.refused(recorder, &mistakes, mistakes.to_string()),
    };
    for warning in parsed.warnings {
        tracing::warn!(configuration = NAME, %warning, "configuration understood with a warning");
        recorder.warning(configured.map.as_ref(), "ConfigurationWarning", warning);
    }
    let news = sender.send_if_modified(|current| {
        let changed = current.as_ref() != Some(&parsed.config);
        *current = Some(parsed.config);
        changed
    });
    if news {
        configured.in_force(recorder, "the scheduler runs with this configuration".to_owned());
    }
}

/// Whether it stands there, or somebody else's.
async fn write_default(client: &Client) -> bool {
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([(KEY.to_owned(), DEFAULT.to_owned())])),
        ..ConfigMap::default()
    };
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), CONFIGURATION_NAMESPACE);
    match api.create(&PostParams::default(), &map).await {
        Err(kube::Error::Api(status)) if status.code == 409 => true,
        Err(error) => {
            tracing::warn!(%error, "the configuration in force could not be shown in {CONFIGURATION_NAMESPACE}");
            false
        }
        Ok(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_there_at_first_is_the_default() {
        let parsed = Config::parse(DEFAULT, &Registry::in_tree()).expect("a configuration");
        assert_eq!((parsed.config, parsed.warnings), (Config::default(), Vec::new()));
    }

    #[tokio::test]
    async fn an_extender_that_cannot_be_reached_in_principle_is_refused() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let with = |tls: &str| {
            format!(
                "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders:\n\
                 - {{urlPrefix: 'http://127.0.0.1:9'}}\n- {{urlPrefix: 'https://127.0.0.1:9', tlsConfig: {{{tls}}}}}\n"
            )
        };
        assert!(read(&with("insecure: true"), &Registry::in_tree()).is_ok());
        let refused = read(&with("caFile: /nowhere/ca.pem"), &Registry::in_tree()).expect_err("refused");
        let told = refused.to_string();
        assert!(told.starts_with("extenders[1]: /nowhere/ca.pem: No such file"), "{told}");
    }
}
