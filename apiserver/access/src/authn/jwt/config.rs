//! `AuthenticationConfiguration` as it is written
//! (<https://kubernetes.io/docs/reference/config-api/apiserver-config.v1/#apiserver-config-k8s-io-v1-AuthenticationConfiguration>).

use coracle_component_base::config_file;
use serde::Deserialize;

/// The kind of the document, and its versions.
pub const KIND: &str = "AuthenticationConfiguration";
pub const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthenticationConfiguration {
    pub api_version: String,
    pub kind: String,
    pub jwt: Vec<JwtAuthenticator>,
    pub anonymous: Option<AnonymousAuthConfig>,
}

impl AuthenticationConfiguration {
    /// # Errors
    /// A document of another kind, a field that is unknown or of another type.
    pub fn parse(text: &str) -> Result<Self, String> {
        config_file::parse(text, KIND, &VERSIONS)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct AnonymousAuthConfig {
    pub enabled: bool,
    pub conditions: Vec<AnonymousAuthCondition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct AnonymousAuthCondition {
    pub path: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct JwtAuthenticator {
    pub issuer: Issuer,
    pub claim_validation_rules: Vec<ClaimValidationRule>,
    pub claim_mappings: ClaimMappings,
    pub user_validation_rules: Vec<UserValidationRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Issuer {
    pub url: String,
    /// Where the discovery document is, if not below `url`.
    #[serde(rename = "discoveryURL")]
    pub discovery_url: String,
    /// PEM; without it the machine's own roots count.
    pub certificate_authority: String,
    pub audiences: Vec<String>,
    pub audience_match_policy: String,
    pub egress_selector_type: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimValidationRule {
    pub claim: String,
    pub required_value: String,
    pub expression: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimMappings {
    pub username: PrefixedClaimOrExpression,
    pub groups: PrefixedClaimOrExpression,
    pub uid: ClaimOrExpression,
    pub extra: Vec<ExtraMapping>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PrefixedClaimOrExpression {
    pub claim: String,
    /// Must be said with a claim, empty for none.
    pub prefix: Option<String>,
    pub expression: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimOrExpression {
    pub claim: String,
    pub expression: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ExtraMapping {
    pub key: String,
    pub value_expression: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct UserValidationRule {
    pub expression: String,
    pub message: String,
}
