//! Secrets.

use super::configmaps::{MAX_BYTES, decoded_len, frozen};
use super::table;
use super::value::*;
use super::{
    Column, CreateStrategy, Env, ResourceFacts, SelectableFields, TableConvertor, UpdateStrategy, rules,
};
use crate::{Facts, FieldLabels};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_api::well_known;
use coracle_api::{FieldError, Object, decode};
use jiff::Timestamp;
use serde_json::Value;

pub struct Secrets;

impl ResourceFacts for Secrets {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }
}

impl CreateStrategy for Secrets {
    fn warnings(&self, new: &Object, _old: Option<&Object>) -> Vec<String> {
        let entry = |key: &str| STANDARD.decode(at(new, "data").get(key)?.as_str()?).ok();
        match (str_at(new, "type"), entry("tls.crt"), entry("tls.key")) {
            ("kubernetes.io/tls", Some(certificate), Some(key)) => {
                coracle_pki::key_pair_mistake(&certificate, &key).map(str::to_owned).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// `stringData` is write-only: its entries go to `data`, over those of the same name.
    fn defaults(&self, object: &mut Object) {
        default_str(object, "type", "Opaque");
        let Some(Value::Object(texts)) = remove(object, "stringData") else { return };
        if let Some(data) = object_at(object, "data") {
            for (key, text) in texts {
                set(data, &key, STANDARD.encode(text.as_str().unwrap_or_default()));
            }
        }
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let mut bytes = 0;
        for (key, value) in entries_at(object, "data") {
            rules::config_key(key, &Path::root("data").key(key), errors);
            bytes += value.as_str().map_or(0, decoded_len);
        }
        if bytes > MAX_BYTES {
            errors.too_long(&Path::root("data"), MAX_BYTES);
        }
        by_type(object, errors);
    }
}

impl UpdateStrategy for Secrets {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        rules::immutable(new, old, &["type"], errors);
        frozen(new, old, &["data"], errors);
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }
}

impl TableConvertor for Secrets {
    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("Type", "What the data is for"),
                table::string("Data", "Number of entries"),
                table::AGE,
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let count = entries_at(object, "data").count();
        vec![name(object).into(), str_at(object, "type").into(), count.into(), table::age(object, now)]
    }
}

impl SelectableFields for Secrets {
    fn field_labels(&self, _group: &str) -> FieldLabels {
        FieldLabels { names: &["type"], ..FieldLabels::CORE }
    }

    fn fields(&self, object: &Object) -> Vec<(&'static str, String)> {
        vec![("type", str_at(object, "type").to_owned())]
    }
}

crate::usual!(Secrets: StatusStrategy, DeleteStrategy, TransactionStrategy, ResetFieldsStrategy);

/// The entries that a Secret of a built-in type must have.
fn by_type(secret: &Object, errors: &mut Errors) {
    let data = Path::root("data");
    let absent = |key: &str| at(secret, "data").get(key).is_none();
    let mut need = |keys: &[&str]| {
        for key in keys.iter().filter(|key| absent(key)) {
            errors.required(&data.key(key), "");
        }
    };
    match str_at(secret, "type") {
        "kubernetes.io/ssh-auth" if str_at(at(secret, "data"), "ssh-privatekey").is_empty() => {
            errors.required(&data.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => need(&["tls.crt", "tls.key"]),
        "kubernetes.io/basic-auth" if absent("username") && absent("password") => {
            need(&["username", "password"])
        }
        "kubernetes.io/dockercfg" => json_entry(secret, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => json_entry(secret, ".dockerconfigjson", errors),
        well_known::SERVICE_ACCOUNT_TOKEN => {
            const NAME: &str = well_known::SERVICE_ACCOUNT_NAME;
            let account = at(secret, "metadata.annotations").get(NAME).and_then(Value::as_str);
            if account.is_none_or(str::is_empty) {
                errors.required(&Path::root("metadata").field("annotations").key(NAME), "");
            }
        }
        _ => {}
    }
}

fn json_entry(secret: &Object, key: &str, errors: &mut Errors) {
    let path = Path::root("data").key(key);
    let Some(text) = at(secret, "data").get(key).and_then(Value::as_str) else {
        errors.required(&path, "");
        return;
    };
    let Ok(bytes) = STANDARD.decode(text) else { return };
    let wrong = match decode::parse(&bytes) {
        Ok((Value::Object(_) | Value::Null, _)) => return,
        Ok((other, _)) => {
            let what = decode::json_kind(&other);
            format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}")
        }
        Err(error) => error.to_string(),
    };
    errors.invalid(&path, "<secret contents redacted>", &wrong);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, errors};
    use serde_json::json;

    fn messages(object: Object) -> Vec<String> {
        errors(&Secrets, object)
    }

    #[test]
    fn string_data_becomes_data() {
        let mut object = json!({ "data": { "a": "eA==", "b": "eA==" }, "stringData": { "a": "y" } });
        Secrets.defaults(&mut object);
        assert_eq!(object, json!({ "type": "Opaque", "data": { "a": "eQ==", "b": "eA==" } }));
    }

    #[test]
    fn types_need_their_entries() {
        for (object, expected) in [
            (
                json!({ "type": "kubernetes.io/tls", "data": { "tls.crt": "" } }),
                vec!["data[tls.key]: Required value"],
            ),
            (
                json!({ "type": "kubernetes.io/service-account-token" }),
                vec!["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
            ),
            (
                json!({ "type": "kubernetes.io/dockerconfigjson", "stringData": { ".dockerconfigjson": "{" } }),
                vec![
                    "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": unexpected end of JSON input",
                ],
            ),
            (json!({ "type": "mine", "data": {} }), vec![]),
        ] {
            assert_eq!(messages(object), expected);
        }
        assert!(
            messages(json!({ "data": { "a/b": "" } }))[0].starts_with("data[a/b]: Invalid value: \"a/b\"")
        );
    }

    #[test]
    fn immutable_secrets_stay() {
        let old = json!({ "type": "Opaque", "immutable": true, "data": { "a": "" } });
        let new = json!({ "type": "other", "data": {} });
        let mut errors = Vec::new();
        Secrets.validate_update(&new, &old, &World::default().env(), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "type: Invalid value: \"other\": field is immutable",
                "immutable: Forbidden: field is immutable when `immutable` is set",
                "data: Forbidden: field is immutable when `immutable` is set",
            ]
        );
    }
}
