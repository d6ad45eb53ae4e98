//! An AuthorizationConfiguration, judged as upstream judges it.

use super::webhook::{self, WebhookFields};
use super::{Kind, NO_ABAC, Plan, Planned};
use coracle_api::{FieldError, validation};
use coracle_component_base::config_file;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    authorizers: Vec<Authorizer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Authorizer {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    name: String,
    webhook: Option<WebhookFields>,
}

pub(super) fn read(text: &str) -> Result<Plan, Vec<String>> {
    let document: Document = config_file::parse(text, "AuthorizationConfiguration", &["v1", "v1beta1"])
        .map_err(|mistake| vec![mistake])?;
    let mut judging = Judging::default();
    if document.authorizers.is_empty() {
        let why = "at least one authorization mode must be defined";
        judging.mistakes.push(FieldError::required("authorizers", why));
    }
    let mut planned = Vec::new();
    for (i, authorizer) in document.authorizers.into_iter().enumerate() {
        planned.extend(judging.authorizer(&format!("authorizers[{i}]"), authorizer));
    }
    let Judging { mistakes, .. } = judging;
    match mistakes.is_empty() {
        true => Ok(Plan(planned)),
        false => {
            Err(mistakes.iter().map(|mistake| format!("{}: {}", mistake.field, mistake.detail)).collect())
        }
    }
}

#[derive(Default)]
struct Judging {
    mistakes: Vec<FieldError>,
    kinds: Vec<Kind>,
    names: Vec<String>,
}

impl Judging {
    /// `None` where there is a mistake, which is noted.
    fn authorizer(&mut self, at: &str, authorizer: Authorizer) -> Option<Planned> {
        let kind = self.kind(&format!("{at}.type"), &authorizer.kind)?;
        self.name(&format!("{at}.name"), kind, &authorizer.name);
        let webhook = match (kind, authorizer.webhook) {
            (Kind::Webhook, None) => {
                let why = "required when type=Webhook";
                self.mistakes.push(FieldError::required(format!("{at}.webhook"), why));
                None
            }
            (Kind::Webhook, Some(fields)) => webhook::read(at, &authorizer.name, fields, &mut self.mistakes),
            (_, Some(_)) => {
                let why = "may only be specified when type=Webhook";
                self.mistakes.push(FieldError::invalid(format!("{at}.webhook"), &"non-null".into(), why));
                None
            }
            (_, None) => None,
        };
        Some(Planned { kind, name: authorizer.name, webhook })
    }

    fn kind(&mut self, field: &str, name: &str) -> Option<Kind> {
        let value = Value::from(name);
        let mistake = match Kind::parse(name) {
            _ if name.is_empty() => FieldError::required(field, ""),
            _ if name == "ABAC" => FieldError::invalid(field, &value, NO_ABAC),
            None => FieldError::not_supported(field, &value, &Kind::names()),
            Some(kind) if kind != Kind::Webhook && self.kinds.contains(&kind) => {
                FieldError::duplicate(field, &value)
            }
            Some(kind) => {
                self.kinds.push(kind);
                return Some(kind);
            }
        };
        self.mistakes.push(mistake);
        None
    }

    /// As upstream, what is no webhook is called by its type.
    fn name(&mut self, field: &str, kind: Kind, name: &str) {
        let (value, expected) = (Value::from(name), kind.name().to_lowercase());
        let errors = validation::dns1123_subdomain(name);
        let mistake = if name.is_empty() {
            FieldError::required(field, "")
        } else if self.names.iter().any(|known| known == name) {
            FieldError::duplicate(field, &value)
        } else if !errors.is_empty() {
            FieldError::invalid(field, &value, &format!("authorizer name is invalid: {}", errors.join(", ")))
        } else if kind != Kind::Webhook && name != expected {
            let why = format!("expected name {expected} for authorizer {} instead of {name}", kind.name());
            FieldError::invalid(field, &value, &why)
        } else {
            self.names.push(name.to_owned());
            return;
        };
        self.mistakes.push(mistake);
    }
}
