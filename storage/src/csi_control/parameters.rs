//! The parameters of a StorageClass that are for who provisions, not for the driver.
//!
//! <https://kubernetes-csi.github.io/docs/secrets-and-credentials-storage-class.html>

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, SecretReference};
use std::collections::BTreeMap;

const PREFIX: &str = "csi.storage.k8s.io/";
const FS_TYPE: &str = "csi.storage.k8s.io/fstype";
/// What upstream reads beside it.
const OLD_FS_TYPE: &str = "fstype";

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    #[error("found unknown parameter key \"{0}\" with reserved namespace csi.storage.k8s.io/")]
    Unknown(String),
    #[error("fstype specified in parameters with both \"fstype\" and \"csi.storage.k8s.io/fstype\" keys")]
    TwoFsTypes,
    #[error("either name and namespace for {0} secrets specified, Both must be specified")]
    HalfASecret(&'static str),
    #[error("invalid tokens: \"{0}\" in \"{1}\"")]
    Token(String, String),
}

/// What the secrets of a class are for, as its parameters name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Provision,
    ControllerPublish,
    NodeStage,
    NodePublish,
    ControllerExpand,
    NodeExpand,
}

impl Purpose {
    const ALL: [Self; 6] = [
        Self::Provision,
        Self::ControllerPublish,
        Self::NodeStage,
        Self::NodePublish,
        Self::ControllerExpand,
        Self::NodeExpand,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Provision => "provisioner",
            Self::ControllerPublish => "controller-publish",
            Self::NodeStage => "node-stage",
            Self::NodePublish => "node-publish",
            Self::ControllerExpand => "controller-expand",
            Self::NodeExpand => "node-expand",
        }
    }

    fn key(self, part: &str) -> String {
        secret_key(self.word(), part)
    }
}

/// A class's parameters, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    pub fs_type: String,
    /// What the driver is told.
    pub for_driver: BTreeMap<String, String>,
    templates: BTreeMap<String, String>,
}

impl Parameters {
    pub fn of(parameters: &BTreeMap<String, String>) -> Result<Self, ParameterError> {
        let mut read = Self::default();
        let known: Vec<String> =
            Purpose::ALL.iter().flat_map(|purpose| [purpose.key("name"), purpose.key("namespace")]).collect();
        for (key, value) in parameters {
            if key == FS_TYPE || key == OLD_FS_TYPE {
                if !read.fs_type.is_empty() {
                    return Err(ParameterError::TwoFsTypes);
                }
                read.fs_type.clone_from(value);
            } else if known.contains(key) {
                read.templates.insert(key.clone(), value.clone());
            } else if key.starts_with(PREFIX) {
                return Err(ParameterError::Unknown(key.clone()));
            } else {
                read.for_driver.insert(key.clone(), value.clone());
            }
        }
        Ok(read)
    }

    /// The secret that the class names for a claim. `None` where it names none.
    pub fn secret(
        &self,
        purpose: Purpose,
        volume: &str,
        claim: &PersistentVolumeClaim,
    ) -> Result<Option<SecretReference>, ParameterError> {
        let meta = &claim.metadata;
        let of_namespace = |token: &str| match token {
            "pv.name" => Some(volume.to_owned()),
            "pvc.namespace" => meta.namespace.clone(),
            _ => None,
        };
        let of_name = |token: &str| {
            let quoted = token.strip_prefix("pvc.annotations['").and_then(|rest| rest.strip_suffix("']"));
            match (token, quoted) {
                ("pvc.name", _) => meta.name.clone(),
                (_, Some(key)) => meta.annotations.as_ref()?.get(key).cloned(),
                _ => of_namespace(token),
            }
        };
        secret_of(
            &self.templates,
            purpose.word(),
            |token, in_name| {
                if in_name { of_name(token) } else { of_namespace(token) }
            },
        )
    }
}

/// For what the secrets of a snapshot class are.
const OF_SNAPSHOTS: [&str; 2] = ["snapshotter", "snapshotter-list"];

impl Parameters {
    /// What a driver is told of a snapshot class's parameters.
    pub fn of_snapshots(
        parameters: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, String>, ParameterError> {
        let known = OF_SNAPSHOTS.map(|word| ["name", "namespace"].map(|part| secret_key(word, part)));
        let mut told = BTreeMap::new();
        for (key, value) in parameters.iter().filter(|(key, _)| !known.as_flattened().contains(key)) {
            if key.starts_with(PREFIX) {
                return Err(ParameterError::Unknown(key.clone()));
            }
            told.insert(key.clone(), value.clone());
        }
        Ok(told)
    }
}

fn secret_key(word: &str, part: &str) -> String {
    format!("{PREFIX}{word}-secret-{part}")
}

/// The secret that parameters name for `word`. `value` says what a token stands for, and is told whether it stands in the
/// secret's name, where more may stand than in its namespace. `None` where none is named.
pub fn secret_of(
    parameters: &BTreeMap<String, String>,
    word: &'static str,
    value: impl Fn(&str, bool) -> Option<String>,
) -> Result<Option<SecretReference>, ParameterError> {
    let get = |part: &str| parameters.get(&secret_key(word, part));
    match (get("name"), get("namespace")) {
        (Some(name), Some(namespace)) => Ok(Some(SecretReference {
            name: Some(filled(name, |token| value(token, true))?),
            namespace: Some(filled(namespace, |token| value(token, false))?),
        })),
        (None, None) => Ok(None),
        _ => Err(ParameterError::HalfASecret(word)),
    }
}

/// The template with every `${token}` replaced.
fn filled(template: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, ParameterError> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        let unknown = |token: &str| ParameterError::Token(token.to_owned(), template.to_owned());
        let (token, after) = after.split_once('}').ok_or_else(|| unknown(after))?;
        text.push_str(before);
        text.push_str(&value(token).ok_or_else(|| unknown(token))?);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parameters(value: serde_json::Value) -> Result<Parameters, ParameterError> {
        Parameters::of(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn what_is_not_for_the_driver_is_taken_out() {
        let read = parameters(json!({ "csi.storage.k8s.io/fstype": "ext4", "tier": "gold",
            "csi.storage.k8s.io/provisioner-secret-name": "s-${pvc.name}-${pvc.annotations['team']}",
            "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}" }))
        .unwrap();
        assert_eq!((read.fs_type.as_str(), read.for_driver.len()), ("ext4", 1));
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({ "metadata": { "name": "data",
            "namespace": "shop", "annotations": { "team": "blue" } } }))
        .unwrap();
        let secret = read.secret(Purpose::Provision, "pv", &claim).unwrap().unwrap();
        assert_eq!(
            (secret.name.as_deref(), secret.namespace.as_deref()),
            (Some("s-data-blue"), Some("shop"))
        );
        assert_eq!(read.secret(Purpose::NodeStage, "pv", &claim), Ok(None));
    }

    #[test]
    fn what_is_wrong_with_parameters_is_said() {
        let unknown = parameters(json!({ "csi.storage.k8s.io/colour": "red" })).unwrap_err();
        assert_eq!(unknown, ParameterError::Unknown("csi.storage.k8s.io/colour".to_owned()));
        let two = parameters(json!({ "csi.storage.k8s.io/fstype": "ext4", "fstype": "xfs" }));
        assert_eq!(two, Err(ParameterError::TwoFsTypes));
        let half = parameters(json!({ "csi.storage.k8s.io/node-stage-secret-name": "s" })).unwrap();
        let claim = PersistentVolumeClaim::default();
        assert_eq!(
            half.secret(Purpose::NodeStage, "pv", &claim),
            Err(ParameterError::HalfASecret("node-stage"))
        );
        let foreign = parameters(json!({ "csi.storage.k8s.io/node-stage-secret-name": "s",
            "csi.storage.k8s.io/node-stage-secret-namespace": "${pvc.name}" }))
        .unwrap();
        let token = ParameterError::Token("pvc.name".to_owned(), "${pvc.name}".to_owned());
        assert_eq!(foreign.secret(Purpose::NodeStage, "pv", &claim), Err(token));
    }
}
