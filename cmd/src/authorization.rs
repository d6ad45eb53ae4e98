//! Settings of who may do what, under the names of upstream's flags.

use crate::settings::first_of;
use crate::time::Time;
use clap::Args;
use coracle_apiserver::authz::config::{self, Flags};
use coracle_apiserver::authz::{Gate, Locals};
use coracle_apiserver::metrics::Metrics;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// In the configuration file under `authorization`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthorizationArgs {
    /// Who decides what requests may do: a file with an apiserver.config.k8s.io/v1 AuthorizationConfiguration, which is
    /// followed while the server runs; instead of the other --authorization flags
    #[arg(long, value_name = "FILE")]
    pub authorization_config: Option<PathBuf>,
    /// Who decides, in order: Node, RBAC, Webhook, AlwaysAllow, AlwaysDeny [default: Node,RBAC]
    #[arg(long, value_name = "MODE,...", value_delimiter = ',')]
    pub authorization_mode: Option<Vec<String>>,
    /// Where the mode Webhook asks: a kubeconfig whose server is the authorizer
    #[arg(long, value_name = "FILE")]
    pub authorization_webhook_config_file: Option<PathBuf>,
    /// Version of the SubjectAccessReviews that the webhook is sent: v1 or v1beta1 [default: v1beta1]
    #[arg(long, value_name = "VERSION")]
    pub authorization_webhook_version: Option<String>,
    /// How long the webhook is believed that something is allowed [default: 5m0s]
    #[arg(long, value_name = "DURATION")]
    pub authorization_webhook_cache_authorized_ttl: Option<Time>,
    /// How long the webhook is believed that something is not allowed [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub authorization_webhook_cache_unauthorized_ttl: Option<Time>,
}

impl AuthorizationArgs {
    /// These, and where one is missing the other's.
    pub fn or(self, other: Self) -> Self {
        first_of!(
            self, other:
            authorization_config, authorization_mode, authorization_webhook_config_file,
            authorization_webhook_version, authorization_webhook_cache_authorized_ttl,
            authorization_webhook_cache_unauthorized_ttl
        )
    }

    fn flags(&self) -> Flags {
        Flags {
            mode: self.authorization_mode.clone(),
            webhook_config_file: self.authorization_webhook_config_file.clone(),
            webhook_version: self.authorization_webhook_version.clone(),
            webhook_cache_authorized_ttl: self.authorization_webhook_cache_authorized_ttl.map(|time| time.0),
            webhook_cache_unauthorized_ttl: self
                .authorization_webhook_cache_unauthorized_ttl
                .map(|time| time.0),
        }
    }

    pub fn check(&self, mistakes: &mut Vec<String>) {
        let flags = self.flags();
        let Some(file) = &self.authorization_config else {
            mistakes.extend(flags.plan().err().unwrap_or_default());
            return;
        };
        if flags.is_given() {
            let why = "authorization-config can not be specified when authorization-mode or \
                       authorization-webhook-* flags are defined";
            mistakes.push(why.to_owned());
        }
        let named = |mistake: String| format!("authorization-config: {mistake}");
        mistakes.extend(config::load(file).err().unwrap_or_default().into_iter().map(named));
    }

    /// Whom the server asks; where a file says it, its changes are followed until `stop`, and counted in
    /// `metrics`. Needs a runtime.
    pub fn gate(
        &self,
        locals: &Locals,
        metrics: &Metrics,
        stop: &CancellationToken,
    ) -> Result<Arc<Gate>, Vec<String>> {
        let Some(path) = &self.authorization_config else {
            return Ok(Gate::new(self.flags().plan()?.chain(locals)));
        };
        let (text, plan) = config::load(path)?;
        let gate = Gate::new(plan.chain(locals));
        let reloads = config::reloads(&text, metrics);
        let file = (path.clone(), text);
        tokio::spawn(config::follow(file, reloads, gate.clone(), locals.clone(), stop.clone()));
        Ok(gate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(args: &AuthorizationArgs) -> Vec<String> {
        let mut mistakes = Vec::new();
        args.check(&mut mistakes);
        mistakes
    }

    fn modes(modes: &[&str]) -> AuthorizationArgs {
        let modes = modes.iter().map(|mode| (*mode).to_owned()).collect();
        AuthorizationArgs { authorization_mode: Some(modes), ..AuthorizationArgs::default() }
    }

    #[test]
    fn modes_are_checked() {
        assert!(mistakes(&AuthorizationArgs::default()).is_empty());
        assert!(mistakes(&modes(&["RBAC", "Node"])).is_empty());
        let all = mistakes(&modes(&["RBAC", "RBAC", "Rbac", "ABAC", "Webhook"]));
        for word in
            ["more than once", "\"Rbac\" is not a valid mode", "ABAC is not", "config file not passed"]
        {
            assert!(all.iter().any(|mistake| mistake.contains(word)), "{word}: {all:?}");
        }
        let unused = AuthorizationArgs {
            authorization_webhook_config_file: Some("k".into()),
            authorization_webhook_version: Some("v2".to_owned()),
            ..AuthorizationArgs::default()
        };
        assert_eq!(mistakes(&unused).len(), 1, "{:?}", mistakes(&unused));
        let unused = AuthorizationArgs { authorization_webhook_version: None, ..unused };
        assert_eq!(
            mistakes(&unused),
            ["cannot specify --authorization-webhook-config-file without mode Webhook"]
        );
    }

    #[test]
    fn the_file_stands_alone_and_is_checked_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("authorization.yaml");
        let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n\
                    - { type: RBAC, name: rbac }\n- { type: Magic, name: magic }\n- { type: Webhook, name: w }\n";
        std::fs::write(&path, text).expect("written");
        let args = AuthorizationArgs { authorization_config: Some(path), ..modes(&["RBAC"]) };
        let all = mistakes(&args);
        assert_eq!(all.len(), 3, "{all:?}");
        assert!(all[0].contains("can not be specified when"), "{all:?}");
        assert!(
            all[1].contains("authorization.yaml: authorizers[1].type: Unsupported value: \"Magic\""),
            "{all:?}"
        );
        assert!(
            all[2].contains("authorizers[2].webhook: Required value: required when type=Webhook"),
            "{all:?}"
        );
    }
}
