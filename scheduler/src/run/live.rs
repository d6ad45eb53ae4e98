//! The configuration in the ConfigMap `kube-scheduler-config` of kube-system: read when it changes, refused when it is
//! wrong.

use super::extender::Extenders;
use crate::config::{Config, Mistake, Mistakes, Parsed};
use crate::plugins::Registry;
use coracle_client::{FollowedObject, Recorder};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use std::collections::BTreeMap;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "kube-system";
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
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let recorder = Recorder::new(client.clone(), "kube-scheduler", "");
    let mut followed = FollowedObject::<ConfigMap>::new(client.clone(), &path, NAME);
    let mut told = String::new();
    loop {
        let Some(map) = followed.next().await else {
            write_default(&client).await;
            continue;
        };
        let text = text_of(&map);
        if text != told {
            take(&map, &text, &registry, &recorder, &sender);
            told = text;
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
    map: &ConfigMap,
    text: &str,
    registry: &Registry,
    recorder: &Recorder,
    sender: &watch::Sender<Option<Config>>,
) {
    match read(text, registry) {
        Ok(parsed) => {
            for warning in parsed.warnings {
                tracing::warn!(configuration = NAME, %warning, "configuration understood with a warning");
                recorder.warning(map, "ConfigurationWarning", warning);
            }
            let news = sender.send_if_modified(|current| {
                let changed = current.as_ref() != Some(&parsed.config);
                *current = Some(parsed.config);
                changed
            });
            if news {
                recorder.normal(map, "ConfigurationInForce", "the scheduler runs with this configuration");
            }
        }
        Err(mistakes) => {
            tracing::error!(configuration = NAME, %mistakes, "configuration refused, the last one stays in force");
            recorder.warning(map, "ConfigurationRefused", mistakes.to_string());
        }
    }
}

async fn write_default(client: &Client) {
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([(KEY.to_owned(), DEFAULT.to_owned())])),
        ..ConfigMap::default()
    };
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    match api.create(&PostParams::default(), &map).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => tracing::warn!(%error, "the configuration in force could not be shown in {NAMESPACE}"),
        Ok(_) => {}
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
