//! Settings of who gets in, under the names of upstream's flags.

use crate::settings::first_of;
use crate::time::Time;
use clap::Args;
use coracle_apiserver::authn::{ISSUER, Issuing};
use serde::Deserialize;
use std::path::PathBuf;

/// In the configuration file under `authentication`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessArgs {
    /// Issuer of service account tokens; given again, further issuers whose tokens are believed
    #[arg(long, value_name = "URL")]
    pub service_account_issuer: Option<Vec<String>>,
    /// Where the public key of service account tokens is found [default: on this server]
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,
    /// Longest life of a service account token, in seconds; less is asked for, less is given
    #[arg(long, value_name = "SECONDS")]
    pub service_account_max_token_expiration: Option<i64>,
    /// What a service account token must be for to be good for the API [default: the issuers]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub api_audiences: Option<Vec<String>>,
    /// Whether requests without credentials are those of system:anonymous [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub anonymous_auth: Option<bool>,
    /// Whether tokens of pods are good for a year, for clients that never read them again [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub service_account_extend_token_expiration: Option<bool>,
    /// Whose tokens are believed, and for which paths nobody need say who they are: a file with an
    /// apiserver.config.k8s.io/v1 AuthenticationConfiguration; its changes take effect at once
    #[arg(long, value_name = "FILE")]
    pub authentication_config: Option<PathBuf>,
    /// Who is asked about tokens that nobody else knows: a kubeconfig whose server is a webhook for TokenReviews
    #[arg(long, value_name = "FILE")]
    pub authentication_token_webhook_config_file: Option<PathBuf>,
    /// How long an answer of that webhook is good [default: 2m0s]
    #[arg(long, value_name = "DURATION")]
    pub authentication_token_webhook_cache_ttl: Option<Time>,
    /// Version of the TokenReviews that the webhook is sent: v1 or v1beta1 [default: v1beta1]
    #[arg(long, value_name = "VERSION")]
    pub authentication_token_webhook_version: Option<String>,
    /// An OpenID Connect issuer whose tokens are believed; with --oidc-client-id
    #[arg(long, value_name = "URL")]
    pub oidc_issuer_url: Option<String>,
    /// What its tokens must be for
    #[arg(long, value_name = "ID")]
    pub oidc_client_id: Option<String>,
    /// PEM of the authorities of its server [default: the machine's own]
    #[arg(long, value_name = "FILE")]
    pub oidc_ca_file: Option<PathBuf>,
    /// Claim with the user's name [default: sub]
    #[arg(long, value_name = "CLAIM")]
    pub oidc_username_claim: Option<String>,
    /// What goes in front of it, - for nothing [default: the issuer and #, but nothing before an email]
    #[arg(long, value_name = "TEXT")]
    pub oidc_username_prefix: Option<String>,
    /// Claim with the user's groups
    #[arg(long, value_name = "CLAIM")]
    pub oidc_groups_claim: Option<String>,
    /// What goes in front of each
    #[arg(long, value_name = "TEXT")]
    pub oidc_groups_prefix: Option<String>,
    /// Algorithms that its tokens may be signed with [default: RS256]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub oidc_signing_algs: Option<Vec<String>>,
    /// A claim that its tokens must have with this value; may be given again
    #[arg(long, value_name = "CLAIM=VALUE")]
    pub oidc_required_claim: Option<Vec<String>>,
}

impl AccessArgs {
    /// These, and where one is missing the other's.
    pub fn or(self, other: Self) -> Self {
        first_of!(
            self, other:
            service_account_issuer, service_account_jwks_uri, service_account_max_token_expiration, api_audiences,
            anonymous_auth, service_account_extend_token_expiration, authentication_config,
            authentication_token_webhook_config_file, authentication_token_webhook_cache_ttl,
            authentication_token_webhook_version, oidc_issuer_url, oidc_client_id, oidc_ca_file,
            oidc_username_claim, oidc_username_prefix, oidc_groups_claim, oidc_groups_prefix, oidc_signing_algs,
            oidc_required_claim
        )
    }

    /// As upstream checks them: issuers that look like URLs must be https, and a token lives between an hour and 2^32
    /// seconds.
    pub fn check(&self, mistakes: &mut Vec<String>) {
        let issuers = self.service_account_issuer.as_deref().unwrap_or_default();
        for issuer in issuers {
            if issuer.is_empty() {
                mistakes.push("service-account-issuer: should not be an empty string".to_owned());
            } else if issuer.contains(':') && !issuer.starts_with("https://") {
                mistakes
                    .push(format!("service-account-issuer: \"{issuer}\" contains a ':' but is no https URL"));
            }
        }
        if self.service_account_jwks_uri.as_deref().is_some_and(|uri| !uri.starts_with("https://")) {
            mistakes.push("service-account-jwks-uri: requires the https scheme".to_owned());
        }
        if self.service_account_max_token_expiration.is_some_and(|s| !(3600..=1 << 32).contains(&s)) {
            mistakes.push(
                "service-account-max-token-expiration: must be between 3600 and 2^32 seconds".to_owned(),
            );
        }
        self.check_authentication(mistakes);
    }

    /// For tokens; `server_url` is where clients find this server.
    pub fn issuing(&self, server_url: &str) -> Issuing {
        let issuers = self.service_account_issuer.clone().unwrap_or_else(|| vec![ISSUER.to_owned()]);
        let own = || format!("{server_url}/openid/v1/jwks");
        Issuing {
            issuers,
            audiences: self.api_audiences.clone().unwrap_or_default(),
            jwks_uri: self.service_account_jwks_uri.clone().unwrap_or_else(own),
            max_seconds: self.service_account_max_token_expiration.unwrap_or(0),
            extend: self.service_account_extend_token_expiration.unwrap_or(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let text = |t: &str| Some(t.to_owned());
        let bad = AccessArgs {
            service_account_issuer: Some(vec!["http://a".to_owned(), String::new()]),
            service_account_jwks_uri: text("http://b"),
            service_account_max_token_expiration: Some(60),
            ..AccessArgs::default()
        };
        let mut mistakes = Vec::new();
        bad.check(&mut mistakes);
        assert_eq!(mistakes.len(), 4, "{mistakes:?}");
        let mut none = Vec::new();
        AccessArgs { service_account_issuer: Some(vec!["me".to_owned()]), ..AccessArgs::default() }
            .check(&mut none);
        assert!(none.is_empty(), "{none:?}");
    }

    #[test]
    fn the_key_is_found_here_unless_said_otherwise() {
        let issuing = AccessArgs::default().issuing("https://192.0.2.1:6443");
        assert_eq!(issuing.jwks_uri, "https://192.0.2.1:6443/openid/v1/jwks");
        assert_eq!(issuing.issuers, [ISSUER]);
        assert!(issuing.extend);
    }
}
