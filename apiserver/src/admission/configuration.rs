//! The file of `--admission-control-config-file`
//! (<https://kubernetes.io/docs/tasks/configure-pod-container/enforce-standards-admission-controller/>).

use super::pod_security::Settings;
use super::pod_security::policy::{Level, Policy, Standard, Version};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const POD_SECURITY: &str = "PodSecurity";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    #[serde(default)]
    plugins: Vec<PluginFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginFile {
    name: String,
    /// Instead of `configuration`; relative to the file that names it.
    #[serde(default)]
    path: String,
    configuration: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PodSecurityFile {
    api_version: String,
    kind: String,
    #[serde(default)]
    defaults: BTreeMap<String, String>,
    #[serde(default)]
    exemptions: Exemptions,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Exemptions {
    usernames: Vec<String>,
    namespaces: Vec<String>,
    runtime_classes: Vec<String>,
}

/// The settings that an `AdmissionConfiguration` gives; all its mistakes, one a line. Only PodSecurity is configured
/// here: a configuration of another plugin is a mistake, never ignored.
pub fn load(path: &Path) -> Result<Settings, String> {
    let file: File = read(path)?;
    let mut mistakes = Vec::new();
    if !matches!(file.api_version.as_str(), "apiserver.config.k8s.io/v1" | "apiserver.k8s.io/v1alpha1")
        || file.kind != "AdmissionConfiguration"
    {
        mistakes.push(format!("{}/{} is no AdmissionConfiguration", file.api_version, file.kind));
    }
    let mut settings = Settings::default();
    for plugin in file.plugins {
        match plugin.name.as_str() {
            POD_SECURITY => match configuration(plugin, path) {
                Ok(found) => settings = pod_security(found, &mut mistakes),
                Err(mistake) => mistakes.push(mistake),
            },
            other => mistakes.push(format!("plugin {other:?} cannot be configured in this server")),
        }
    }
    if mistakes.is_empty() {
        return Ok(settings);
    }
    Err(mistakes.iter().map(|m| format!("{}: {m}", path.display())).collect::<Vec<_>>().join("\n"))
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_saphyr::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

fn configuration(plugin: PluginFile, beside: &Path) -> Result<PodSecurityFile, String> {
    match (plugin.configuration, plugin.path.as_str()) {
        (Some(_), path) if !path.is_empty() => {
            Err(format!("plugin {:?} has a configuration and a path", plugin.name))
        }
        (Some(value), _) => serde_json::from_value(value).map_err(|e| format!("{POD_SECURITY}: {e}")),
        (None, "") => Err(format!("plugin {:?} has neither configuration nor path", plugin.name)),
        (None, path) => read(&beside.parent().unwrap_or(Path::new(".")).join(path)),
    }
}

fn pod_security(file: PodSecurityFile, mistakes: &mut Vec<String>) -> Settings {
    let group = file.api_version.strip_prefix("pod-security.admission.config.k8s.io/");
    if !matches!(group, Some("v1" | "v1beta1" | "v1alpha1")) || file.kind != "PodSecurityConfiguration" {
        mistakes.push(format!("{}/{} is no PodSecurityConfiguration", file.api_version, file.kind));
    }
    let mut defaults = Policy::default();
    for (key, value) in &file.defaults {
        set_default(&mut defaults, key, value, mistakes);
    }
    let Exemptions { usernames, namespaces, runtime_classes } = file.exemptions;
    for (field, values) in
        [("usernames", &usernames), ("namespaces", &namespaces), ("runtimeClasses", &runtime_classes)]
    {
        for (i, value) in values.iter().enumerate() {
            if value.is_empty() || values[..i].contains(value) {
                mistakes.push(format!("exemptions.{field}[{i}]: {value:?} is empty or there twice"));
            }
        }
    }
    Settings {
        defaults,
        exempt_users: usernames,
        exempt_namespaces: namespaces,
        exempt_runtime_classes: runtime_classes,
    }
}

fn set_default(policy: &mut Policy, key: &str, value: &str, mistakes: &mut Vec<String>) {
    let (mode, versioned) = key.strip_suffix("-version").map_or((key, false), |mode| (mode, true));
    let standard: &mut Standard = match mode {
        "enforce" => &mut policy.enforce,
        "audit" => &mut policy.audit,
        "warn" => &mut policy.warn,
        _ => return mistakes.push(format!("defaults.{key}: unknown field")),
    };
    if versioned {
        match Version::parse(value) {
            Some(version) => standard.version = version,
            None => mistakes.push(format!("defaults.{key}: {value:?} is neither \"latest\" nor \"v1.x\"")),
        }
    } else {
        match Level::parse(value) {
            Some(level) => standard.level = level,
            None => {
                mistakes
                    .push(format!("defaults.{key}: {value:?} is none of privileged, baseline, restricted"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Settings, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admission.yaml");
        std::fs::write(dir.path().join("pods.yaml"), PODS).unwrap();
        std::fs::write(&path, text).unwrap();
        load(&path)
    }

    const PODS: &str = "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n\
        defaults: { enforce: baseline, enforce-version: v1.30, warn: restricted }\n\
        exemptions: { usernames: [jane], namespaces: [kube-system], runtimeClasses: [kata] }\n";

    #[test]
    fn defaults_and_exemptions_in_the_file_and_beside_it() {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: PodSecurity\n";
        let inside = PODS.lines().map(|line| format!("    {line}\n")).collect::<String>();
        for text in [format!("{head}  path: pods.yaml\n"), format!("{head}  configuration:\n{inside}")] {
            let settings = of(&text).unwrap();
            let policy = settings.defaults;
            assert_eq!(policy.enforce.to_string(), "baseline:v1.30");
            assert_eq!(
                (policy.warn.to_string(), policy.audit),
                ("restricted:latest".to_owned(), Standard::default())
            );
            assert_eq!(settings.exempt_users, ["jane"]);
            assert_eq!(settings.exempt_namespaces, ["kube-system"]);
            assert_eq!(settings.exempt_runtime_classes, ["kata"]);
        }
    }

    #[test]
    fn every_mistake_is_named() {
        let bad = of(
            "apiVersion: v1\nkind: AdmissionConfiguration\nplugins:\n- name: EventRateLimit\n  path: x\n\
            - name: PodSecurity\n  configuration:\n    apiVersion: pod-security.admission.config.k8s.io/v2\n    \
            kind: PodSecurityConfiguration\n    defaults: { enforce: strict, warn-version: '1.2', other: x }\n    \
            exemptions: { namespaces: [a, a] }\n",
        );
        let text = bad.unwrap_err();
        for word in [
            "v1/Admission",
            "EventRateLimit",
            "/v2/Pod",
            "enforce: \"strict\"",
            "warn-version",
            "other",
            "namespaces[1]",
        ] {
            assert!(text.contains(word), "{word} is missing from {text}");
        }
        assert!(
            of("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugin: []\n").is_err()
        );
    }
}
