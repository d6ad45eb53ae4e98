//! Who else may say who somebody is: the configuration file, the flags of one OpenID Connect issuer, the token webhook.

use crate::access::AccessArgs;
use crate::posts::Posts;
use coracle_apiserver::authn::jwt::config::{
    ClaimMappings, ClaimValidationRule, Issuer, JwtAuthenticator, PrefixedClaimOrExpression,
};
use coracle_apiserver::authn::jwt::{
    ALGORITHMS, Algorithm, AuthenticationConfiguration, Checked, Https, Web,
};
use coracle_apiserver::authn::webhook::{DEFAULT_TTL, ReviewError, Reviewer, TokenWebhook, Version};
use coracle_apiserver::authn::{Anonymous, Authenticator, Configured};
use coracle_apiserver::config_file::{self, Apply, Reloads};
use futures::future::BoxFuture;
use std::path::Path;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Upstream's prefix of the metrics of reloads.
const METRICS: &str = "apiserver_authentication_config_controller";

const TOGETHER: &str =
    "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set";

impl AccessArgs {
    /// All mistakes in what this module reads, the file's among them.
    pub fn check_authentication(&self, mistakes: &mut Vec<String>) {
        if let Err(more) = self.configuration() {
            mistakes.extend(more);
        }
        if let Some(version) = &self.authentication_token_webhook_version
            && Version::parse(version).is_none()
        {
            mistakes
                .push(format!("authentication-token-webhook-version: {version:?} is neither v1 nor v1beta1"));
        }
        if let Some(file) = &self.authentication_token_webhook_config_file
            && let Err(error) = kube::config::Kubeconfig::read_from(file)
        {
            mistakes.push(format!("authentication-token-webhook-config-file: {}: {error}", file.display()));
        }
    }

    /// What is configured, and the text of the file that says it.
    fn configuration(&self) -> Result<(Option<String>, Checked), Vec<String>> {
        let disallowed = self.issuing("").issuers;
        let Some(path) = &self.authentication_config else {
            return Ok((None, self.oidc(&disallowed)?));
        };
        let mut mistakes = Vec::new();
        if self.has_oidc_flags() {
            mistakes.push("authentication-config file and oidc-* flags are mutually exclusive".to_owned());
        }
        let text = config_file::read(path).map_err(|error| coracle_api::error::chain(&error));
        let checked = text.and_then(|text| {
            let checked = self.checked(&text, &disallowed).map_err(|more| more.join("\n"))?;
            Ok((Some(text), checked))
        });
        match checked {
            Ok(checked) if mistakes.is_empty() => Ok(checked),
            Ok(_) => Err(mistakes),
            Err(why) => {
                let shown = path.display();
                mistakes.extend(why.lines().map(|one| format!("authentication-config: {shown}: {one}")));
                Err(mistakes)
            }
        }
    }

    fn checked(&self, text: &str, disallowed: &[String]) -> Result<Checked, Vec<String>> {
        let config = AuthenticationConfiguration::parse(text).map_err(|why| vec![why])?;
        let checked = Checked::new(&config, disallowed, &ALGORITHMS)?;
        if checked.anonymous.is_some() && self.anonymous_auth.is_some() {
            return Err(vec![
                "--anonymous-auth flag cannot be set when anonymous field is configured in authentication \
                 configuration file"
                    .to_owned(),
            ]);
        }
        Ok(checked)
    }

    fn has_oidc_flags(&self) -> bool {
        let texts = [
            &self.oidc_issuer_url,
            &self.oidc_client_id,
            &self.oidc_username_claim,
            &self.oidc_username_prefix,
            &self.oidc_groups_claim,
            &self.oidc_groups_prefix,
        ];
        texts.into_iter().any(Option::is_some)
            || self.oidc_ca_file.is_some()
            || self.oidc_signing_algs.is_some()
            || self.oidc_required_claim.is_some()
    }

    /// The flags as the file would say it.
    fn oidc(&self, disallowed: &[String]) -> Result<Checked, Vec<String>> {
        let mut mistakes = Vec::new();
        let none = || Checked::new(&AuthenticationConfiguration::default(), disallowed, &ALGORITHMS);
        if !self.has_oidc_flags() {
            return none();
        }
        let (Some(url), Some(client)) = (&self.oidc_issuer_url, &self.oidc_client_id) else {
            return Err(vec![TOGETHER.to_owned()]);
        };
        let algorithms = self.oidc_algorithms(&mut mistakes);
        let certificate_authority = self.oidc_ca_file.as_deref().map(|path| pem(path, &mut mistakes));
        let issuer = Issuer {
            url: url.clone(),
            certificate_authority: certificate_authority.unwrap_or_default(),
            audiences: vec![client.clone()],
            ..Issuer::default()
        };
        let jwt = JwtAuthenticator {
            issuer,
            claim_mappings: self.oidc_mappings(url),
            claim_validation_rules: self.oidc_rules(&mut mistakes),
            user_validation_rules: Vec::new(),
        };
        let config = AuthenticationConfiguration { jwt: vec![jwt], ..AuthenticationConfiguration::default() };
        match Checked::new(&config, disallowed, &algorithms) {
            Ok(checked) if mistakes.is_empty() => Ok(checked),
            Ok(_) => Err(mistakes),
            Err(more) => {
                mistakes.extend(more.into_iter().map(|mistake| format!("oidc-*: {mistake}")));
                Err(mistakes)
            }
        }
    }

    /// Of signatures that are believed; upstream's one without the flag.
    fn oidc_algorithms(&self, mistakes: &mut Vec<String>) -> Vec<Algorithm> {
        let Some(named) = &self.oidc_signing_algs else { return vec![Algorithm::RS256] };
        let mut found = Vec::new();
        for name in named {
            match name.parse().ok().filter(|one| ALGORITHMS.contains(one)) {
                Some(algorithm) => found.push(algorithm),
                None => {
                    let known = ALGORITHMS.map(|one| format!("{one:?}")).join(", ");
                    mistakes.push(format!(
                        "oidc-signing-algs: unsupported signing alg: {name:?}, known are {known}"
                    ));
                }
            }
        }
        found
    }

    /// Names but the email get the issuer in front of them, unless something else is said, as upstream.
    fn oidc_mappings(&self, url: &str) -> ClaimMappings {
        let claim = self.oidc_username_claim.clone().unwrap_or_else(|| "sub".to_owned());
        let prefix = match self.oidc_username_prefix.as_deref().unwrap_or_default() {
            "" if claim != "email" => format!("{url}#"),
            "-" => String::new(),
            said => said.to_owned(),
        };
        let of = |claim: String, prefix: String| PrefixedClaimOrExpression {
            claim,
            prefix: Some(prefix),
            expression: String::new(),
        };
        let groups = self.oidc_groups_claim.clone().filter(|claim| !claim.is_empty());
        let groups = groups.map(|claim| of(claim, self.oidc_groups_prefix.clone().unwrap_or_default()));
        ClaimMappings {
            username: of(claim, prefix),
            groups: groups.unwrap_or_default(),
            ..ClaimMappings::default()
        }
    }

    fn oidc_rules(&self, mistakes: &mut Vec<String>) -> Vec<ClaimValidationRule> {
        let mut rules = Vec::new();
        for pair in self.oidc_required_claim.iter().flatten() {
            match pair.split_once('=') {
                Some((claim, value)) if !claim.is_empty() => rules.push(ClaimValidationRule {
                    claim: claim.trim().to_owned(),
                    required_value: value.trim().to_owned(),
                    ..ClaimValidationRule::default()
                }),
                _ => mistakes.push(format!("oidc-required-claim: {pair:?} is no key=value")),
            }
        }
        rules
    }

    /// Where the configuration says nothing of it.
    fn anonymous(&self) -> Anonymous {
        if self.anonymous_auth.unwrap_or(true) { Anonymous::Everywhere } else { Anonymous::Nowhere }
    }

    /// The token webhook, if there is one.
    pub async fn token_webhook(&self) -> Result<Option<TokenWebhook>, String> {
        let Some(file) = &self.authentication_token_webhook_config_file else { return Ok(None) };
        let version = self.authentication_token_webhook_version.as_deref().unwrap_or("v1beta1");
        let version = Version::parse(version).ok_or("authentication-token-webhook-version: unknown")?;
        let ttl = self.authentication_token_webhook_cache_ttl.map_or(DEFAULT_TTL, |time| time.0);
        Ok(Some(TokenWebhook::new(Posts::of_file(file).await?, version, ttl)))
    }

    /// Puts the configuration into effect and follows its file, if it has one, until `stop`.
    pub fn configure(
        &self,
        authenticator: &Arc<Authenticator>,
        stop: CancellationToken,
    ) -> Result<Option<JoinHandle<()>>, String> {
        let (text, checked) = self.configuration().map_err(|mistakes| mistakes.join("\n"))?;
        let web: Arc<dyn Web> = Arc::new(Https);
        let metrics = authenticator.metrics().clone();
        authenticator.configure(checked.start(&Configured::default(), self.anonymous(), &web, &metrics));
        let Some((path, text)) = self.authentication_config.clone().zip(text) else { return Ok(None) };
        let reloads = Reloads::begin(METRICS, &text, &metrics);
        let (args, authenticator) = (self.clone(), authenticator.clone());
        let apply: Box<Apply> = Box::new(move |text| {
            let disallowed = args.issuing("").issuers;
            let outcome = args.checked(&text, &disallowed).map(|checked| {
                let before = authenticator.configured();
                authenticator.configure(checked.start(&before, args.anonymous(), &web, &metrics));
            });
            Box::pin(std::future::ready(outcome.map_err(|mistakes| mistakes.join("; "))))
        });
        Ok(Some(tokio::spawn(config_file::follow(path, text, reloads, apply, stop))))
    }
}

fn pem(path: &Path, mistakes: &mut Vec<String>) -> String {
    config_file::read(path).unwrap_or_else(|error| {
        mistakes.push(format!("oidc-ca-file: {}", coracle_api::error::chain(&error)));
        String::new()
    })
}

impl Reviewer for Posts {
    fn review(&self, review: Vec<u8>) -> BoxFuture<'_, Result<Vec<u8>, ReviewError>> {
        Box::pin(async move {
            let answer = self.post(review).await;
            let failed =
                |error: crate::posts::PostError| ReviewError { message: error.message, again: error.again };
            answer.map(String::into_bytes).map_err(failed)
        })
    }
}

#[cfg(test)]
#[path = "authentication_tests.rs"]
mod tests;
