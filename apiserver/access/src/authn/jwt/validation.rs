//! Whether an `AuthenticationConfiguration` may be: upstream's rules in its words, all mistakes at once, and what comes
//! of it.

use super::config::{
    AuthenticationConfiguration, ClaimMappings, ClaimOrExpression, ClaimValidationRule, ExtraMapping, Issuer,
    JwtAuthenticator, PrefixedClaimOrExpression, UserValidationRule,
};
use super::expression::{Expression, Of};
use super::mapping::{Condition, From, Mapping};
use coracle_api::{FieldError, validation};
use coracle_tls as tls;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Upstream's limit.
const MOST_ISSUERS: usize = 64;

/// A checked authenticator.
#[derive(Debug)]
pub struct Compiled {
    pub issuer: Issuer,
    pub mapping: Mapping,
}

/// `disallowed`: issuers that are believed otherwise, those of service accounts.
///
/// # Errors
/// All mistakes.
pub fn compile(
    config: &AuthenticationConfiguration,
    disallowed: &[String],
) -> Result<Vec<Compiled>, Vec<FieldError>> {
    if config.jwt.len() > MOST_ISSUERS {
        return Err(vec![FieldError::too_many("jwt", config.jwt.len(), MOST_ISSUERS)]);
    }
    let mut check = Check { errors: Vec::new(), disallowed };
    let (mut issuers, mut discoveries) = (BTreeSet::new(), BTreeSet::new());
    let mut compiled = Vec::new();
    for (i, one) in config.jwt.iter().enumerate() {
        let path = format!("jwt[{i}]");
        compiled.extend(check.authenticator(one, &path));
        let Issuer { url, discovery_url, .. } = &one.issuer;
        if !issuers.insert(url) {
            check.duplicate(format!("{path}.issuer.url"), url);
        }
        if !discovery_url.is_empty() && !discoveries.insert(discovery_url) {
            check.duplicate(format!("{path}.issuer.discoveryURL"), discovery_url);
        }
    }
    if let Some(anonymous) = &config.anonymous {
        let paths: Vec<&str> = anonymous.conditions.iter().map(|one| one.path.as_str()).collect();
        if !anonymous.enabled && !paths.is_empty() {
            let why = "enabled should be set to true when conditions are defined";
            check.errors.push(FieldError::invalid(
                "anonymous.conditions",
                &Value::from(paths.join(" ")),
                why,
            ));
        }
    }
    if check.errors.is_empty() { Ok(compiled) } else { Err(check.errors) }
}

struct Check<'a> {
    errors: Vec<FieldError>,
    disallowed: &'a [String],
}

impl Check<'_> {
    fn required(&mut self, field: String, detail: &str) {
        self.errors.push(FieldError::required(field, detail));
    }

    fn invalid(&mut self, field: String, value: &str, detail: &str) {
        self.errors.push(FieldError::invalid(field, &Value::from(value), detail));
    }

    fn duplicate(&mut self, field: String, value: &str) {
        self.errors.push(FieldError::duplicate(field, &Value::from(value)));
    }

    /// `None` after a mistake.
    fn authenticator(&mut self, one: &JwtAuthenticator, path: &str) -> Option<Compiled> {
        self.issuer(&one.issuer, &format!("{path}.issuer"));
        let rules = format!("{path}.claimValidationRules");
        let (required, claim_conditions) = self.claim_rules(&one.claim_validation_rules, &rules);
        let mappings = &one.claim_mappings;
        let path_of_mappings = format!("{path}.claimMappings");
        let username = self.prefixed(&mappings.username, &format!("{path_of_mappings}.username"), true);
        let groups = self.prefixed(&mappings.groups, &format!("{path_of_mappings}.groups"), false);
        let uid = self.uid(&mappings.uid, &format!("{path_of_mappings}.uid"));
        let extra = self.extra(&mappings.extra, &format!("{path_of_mappings}.extra"));
        self.email(mappings, username.as_ref(), &extra, &claim_conditions, &path_of_mappings);
        let user_conditions =
            self.user_rules(&one.user_validation_rules, &format!("{path}.userValidationRules"));
        let mapping =
            Mapping { username: username?, groups, uid, extra, required, claim_conditions, user_conditions };
        Some(Compiled { issuer: one.issuer.clone(), mapping })
    }

    fn issuer(&mut self, issuer: &Issuer, path: &str) {
        let url = format!("{path}.url");
        if issuer.url.is_empty() {
            self.required(url, "");
        } else {
            if self.disallowed.contains(&issuer.url) {
                let mut all = self.disallowed.to_vec();
                all.sort();
                let why = format!("URL must not overlap with disallowed issuers: [{}]", all.join(" "));
                self.invalid(url.clone(), &issuer.url, &why);
            }
            self.url(&issuer.url, &url);
        }
        if !issuer.discovery_url.is_empty() {
            let field = format!("{path}.discoveryURL");
            if issuer.url.trim_end_matches('/') == issuer.discovery_url.trim_end_matches('/') {
                self.invalid(field.clone(), &issuer.discovery_url, "discoveryURL must be different from URL");
            }
            self.url(&issuer.discovery_url, &field);
        }
        self.audiences(issuer, path);
        if !issuer.certificate_authority.is_empty()
            && let Err(error) = tls::certificates(issuer.certificate_authority.as_bytes())
        {
            self.invalid(format!("{path}.certificateAuthority"), "<omitted>", &error.to_string());
        }
        if !issuer.egress_selector_type.is_empty() {
            let why = "this server has no egress selectors: leave it out";
            self.invalid(format!("{path}.egressSelectorType"), &issuer.egress_selector_type, why);
        }
    }

    fn url(&mut self, url: &str, field: &str) {
        let mut wrong = |why: &str| self.invalid(field.to_owned(), url, why);
        let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let Some(authority) = rest.strip_prefix("https://") else { return wrong("URL scheme must be https") };
        let authority = authority.split('/').next().unwrap_or_default();
        if authority.contains('@') {
            wrong("URL must not contain a username or password");
        }
        if !query.is_empty() {
            wrong("URL must not contain a query");
        }
        if !fragment.is_empty() {
            wrong("URL must not contain a fragment");
        }
        let parsed: Result<http::Uri, _> = rest.parse();
        match parsed {
            Err(error) => wrong(&error.to_string()),
            Ok(uri) if uri.host().is_none_or(str::is_empty) => wrong("URL must name a host"),
            Ok(_) => {}
        }
    }

    fn audiences(&mut self, issuer: &Issuer, path: &str) {
        let (field, policy) = (format!("{path}.audiences"), issuer.audience_match_policy.as_str());
        if issuer.audiences.is_empty() {
            let why = format!("at least one {field} is required");
            return self.required(field, &why);
        }
        for (i, audience) in issuer.audiences.iter().enumerate() {
            if audience.is_empty() {
                self.required(format!("{field}[{i}]"), "");
            }
            if issuer.audiences[..i].contains(audience) {
                self.duplicate(format!("{field}[{i}]"), audience);
            }
        }
        let why = match (issuer.audiences.len(), policy) {
            (_, "MatchAny") | (1, "") => return,
            (1, _) => "audienceMatchPolicy must be empty or MatchAny for single audience",
            _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
        };
        self.invalid(format!("{path}.audienceMatchPolicy"), policy, why);
    }

    fn compile(&mut self, source: &str, of: Of, condition: bool, field: String) -> Option<Expression> {
        match Expression::compile(source, of, condition) {
            Ok(expression) => Some(expression),
            Err(why) => {
                self.invalid(field, source, &why);
                None
            }
        }
    }

    fn claim_rules(
        &mut self,
        rules: &[ClaimValidationRule],
        path: &str,
    ) -> (BTreeMap<String, String>, Vec<Condition>) {
        let (mut required, mut conditions) = (BTreeMap::new(), Vec::new());
        let mut seen = BTreeSet::new();
        for (i, rule) in rules.iter().enumerate() {
            let path = format!("{path}[{i}]");
            let ClaimValidationRule { claim, required_value, expression, message } = rule;
            match (claim.is_empty(), expression.is_empty()) {
                (false, false) => self.invalid(path, claim, "claim and expression can't both be set"),
                (true, true) => self.required(path, "claim or expression is required"),
                (false, true) => {
                    if !message.is_empty() {
                        let why = "may not be specified when claim is set";
                        self.invalid(format!("{path}.message"), message, why);
                    }
                    if required.insert(claim.clone(), required_value.clone()).is_some() {
                        self.duplicate(format!("{path}.claim"), claim);
                    }
                }
                (true, false) => {
                    if !required_value.is_empty() {
                        let why = "may not be specified when expression is set";
                        self.invalid(format!("{path}.requiredValue"), required_value, why);
                    }
                    let field = format!("{path}.expression");
                    if !seen.insert(expression) {
                        self.duplicate(field, expression);
                        continue;
                    }
                    let compiled = self.compile(expression, Of::Claims, true, field);
                    conditions.extend(
                        compiled.map(|expression| Condition { expression, message: message.clone() }),
                    );
                }
            }
        }
        (required, conditions)
    }

    fn prefixed(&mut self, from: &PrefixedClaimOrExpression, path: &str, required: bool) -> Option<From> {
        let PrefixedClaimOrExpression { claim, prefix, expression } = from;
        match (claim.is_empty(), expression.is_empty()) {
            (false, false) => {
                self.invalid(path.to_owned(), "", "claim and expression can't both be set");
                None
            }
            (true, true) => {
                if required {
                    self.required(path.to_owned(), "claim or expression is required");
                }
                None
            }
            (true, false) => {
                if let Some(prefix) = prefix {
                    let why = "may not be specified when expression is set";
                    self.invalid(format!("{path}.prefix"), prefix, why);
                }
                self.compile(expression, Of::Claims, false, format!("{path}.expression"))
                    .map(From::Expression)
            }
            (false, true) => {
                if prefix.is_none() {
                    let why = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                    self.required(format!("{path}.prefix"), why);
                }
                Some(From::Claim { claim: claim.clone(), prefix: prefix.clone().unwrap_or_default() })
            }
        }
    }

    fn uid(&mut self, from: &ClaimOrExpression, path: &str) -> Option<From> {
        match (from.claim.as_str(), from.expression.as_str()) {
            ("", "") => None,
            ("", expression) => self
                .compile(expression, Of::Claims, false, format!("{path}.expression"))
                .map(From::Expression),
            (claim, "") => Some(From::Claim { claim: claim.to_owned(), prefix: String::new() }),
            _ => {
                self.invalid(path.to_owned(), "", "claim and expression can't both be set");
                None
            }
        }
    }

    fn extra(&mut self, mappings: &[ExtraMapping], path: &str) -> Vec<(String, Expression)> {
        let mut seen = BTreeSet::new();
        let mut extra = Vec::new();
        for (i, ExtraMapping { key, value_expression }) in mappings.iter().enumerate() {
            let field = format!("{path}[{i}].key");
            self.extra_key(key, &field);
            if !seen.insert(key) {
                self.duplicate(field, key);
                continue;
            }
            let field = format!("{path}[{i}].valueExpression");
            if value_expression.is_empty() {
                self.required(field, "");
                continue;
            }
            let compiled = self.compile(value_expression, Of::Claims, false, field);
            extra.extend(compiled.map(|expression| (key.clone(), expression)));
        }
        extra
    }

    fn extra_key(&mut self, key: &str, field: &str) {
        const PATH_CHARACTERS: &str = "/-._~%!$&'()*+,;=:";
        match key.split_once('/') {
            _ if key.is_empty() => self.required(field.to_owned(), ""),
            Some((host, path)) if !host.is_empty() && !path.is_empty() => {
                for why in validation::dns1123_subdomain(host) {
                    self.invalid(field.to_owned(), host, &why);
                }
                if !path.chars().all(|c| c.is_ascii_alphanumeric() || PATH_CHARACTERS.contains(c)) {
                    let why =
                        r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
                    self.invalid(field.to_owned(), path, why);
                }
                let of = |domain: &str| {
                    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
                };
                if of("k8s.io") || of("kubernetes.io") {
                    let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
                    self.invalid(field.to_owned(), key, why);
                }
            }
            _ => {
                let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
                self.invalid(field.to_owned(), key, why);
            }
        }
        if key.to_lowercase() != key {
            self.invalid(field.to_owned(), key, "must be lowercase");
        }
    }

    /// Whoever takes users by their email must look whether it is theirs.
    fn email(
        &mut self,
        mappings: &ClaimMappings,
        username: Option<&From>,
        extra: &[(String, Expression)],
        conditions: &[Condition],
        path: &str,
    ) {
        let Some(From::Expression(username)) = username else { return };
        let verified = |expression: &Expression| expression.names_claim("email_verified");
        let is_verified = verified(username)
            || extra.iter().any(|(_, expression)| verified(expression))
            || conditions.iter().any(|condition| verified(&condition.expression));
        if username.names_claim("email") && !is_verified {
            let why = "claims.email_verified must be used in claimMappings.username.expression or \
                claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is \
                used in claimMappings.username.expression";
            self.invalid(format!("{path}.username.expression"), &mappings.username.expression, why);
        }
    }

    fn user_rules(&mut self, rules: &[UserValidationRule], path: &str) -> Vec<Condition> {
        let mut seen = BTreeSet::new();
        let mut conditions = Vec::new();
        for (i, UserValidationRule { expression, message }) in rules.iter().enumerate() {
            let field = format!("{path}[{i}].expression");
            if expression.is_empty() {
                self.required(field, "");
            } else if !seen.insert(expression) {
                self.duplicate(field, expression);
            } else {
                let compiled = self.compile(expression, Of::User, true, field);
                conditions
                    .extend(compiled.map(|expression| Condition { expression, message: message.clone() }));
            }
        }
        conditions
    }
}
