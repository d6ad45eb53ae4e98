//! The file of `--admission-control-config-file`
//! (<https://kubernetes.io/docs/reference/config-api/apiserver-admission.v1/>,
//! <https://kubernetes.io/docs/tasks/configure-pod-container/enforce-standards-admission-controller/>).

use super::event_rate_limit::{self, Limit, LimitFields};
use super::image_policy::{self, ImagePolicy};
use super::pod_security::Settings;
use super::pod_security::policy::{Level, Policy, Standard, Version};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const POD_SECURITY: &str = "PodSecurity";

/// What an `AdmissionConfiguration` says of this server's plugins.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    pub pod_security: Settings,
    /// Of EventRateLimit; without any it cannot be turned on.
    pub event_rate_limits: Vec<Limit>,
    /// Of ImagePolicyWebhook, likewise.
    pub image_policy: Option<Arc<ImagePolicy>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EventRateLimitFile {
    api_version: String,
    kind: String,
    #[serde(default)]
    limits: Vec<LimitFields>,
}

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

/// The settings that an `AdmissionConfiguration` gives.
///
/// # Errors
/// All its mistakes, one a line. A configuration of a plugin that takes none here is one, never ignored.
pub fn load(path: &Path) -> Result<Configuration, String> {
    let file: File = read(path)?;
    let mut mistakes = Vec::new();
    if !matches!(file.api_version.as_str(), "apiserver.config.k8s.io/v1" | "apiserver.k8s.io/v1alpha1")
        || file.kind != "AdmissionConfiguration"
    {
        mistakes.push(format!("{}/{} is no AdmissionConfiguration", file.api_version, file.kind));
    }
    let mut found = Configuration::default();
    let mut seen: Vec<String> = Vec::new();
    for plugin in file.plugins {
        if seen.contains(&plugin.name) {
            mistakes.push(format!("plugin {:?} is there twice", plugin.name));
        }
        seen.push(plugin.name.clone());
        if let Err(more) = take(plugin, path, &mut found) {
            mistakes.extend(more);
        }
    }
    if mistakes.is_empty() {
        return Ok(found);
    }
    Err(mistakes.iter().map(|m| format!("{}: {m}", path.display())).collect::<Vec<_>>().join("\n"))
}

fn take(plugin: PluginFile, path: &Path, into: &mut Configuration) -> Result<(), Vec<String>> {
    let name = plugin.name.clone();
    let one = |mistake: String| vec![mistake];
    match name.as_str() {
        POD_SECURITY => {
            let (file, _) = configuration(plugin, path).map_err(one)?;
            let mut mistakes = Vec::new();
            into.pod_security = pod_security(file, &mut mistakes);
            if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
        }
        event_rate_limit::NAME => {
            let (file, _): (EventRateLimitFile, _) = configuration(plugin, path).map_err(one)?;
            into.event_rate_limits = event_rate_limits(&file)?;
            Ok(())
        }
        image_policy::NAME => {
            let (file, place) = configuration(plugin, path).map_err(one)?;
            let beside = place.parent().unwrap_or(Path::new("."));
            let named = |mistake| format!("{name}: {mistake}");
            let made = ImagePolicy::of(&file, beside);
            into.image_policy = Some(made.map_err(|all| all.into_iter().map(named).collect::<Vec<_>>())?);
            Ok(())
        }
        other => Err(one(format!("plugin {other:?} cannot be configured in this server"))),
    }
}

fn event_rate_limits(file: &EventRateLimitFile) -> Result<Vec<Limit>, Vec<String>> {
    let name = event_rate_limit::NAME;
    let EventRateLimitFile { api_version, kind, limits } = file;
    if api_version != "eventratelimit.admission.k8s.io/v1alpha1" || kind != "Configuration" {
        return Err(vec![format!("{name}: {api_version}/{kind} is no Configuration of event rate limits")]);
    }
    let shown = |mistake: &coracle_api::FieldError| format!("{name}: {}: {}", mistake.field, mistake.detail);
    event_rate_limit::limits(limits).map_err(|mistakes| mistakes.iter().map(shown).collect())
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_saphyr::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// What a plugin's part says, and the file where that stands.
fn configuration<T: for<'de> Deserialize<'de>>(
    plugin: PluginFile,
    file: &Path,
) -> Result<(T, PathBuf), String> {
    let PluginFile { name, path, configuration } = plugin;
    match (configuration, path.as_str()) {
        (Some(_), path) if !path.is_empty() => Err(format!("plugin {name:?} has a configuration and a path")),
        (Some(value), _) => {
            let read = serde_json::from_value(value).map_err(|e| format!("{name}: {e}"))?;
            Ok((read, file.to_owned()))
        }
        (None, "") => Err(format!("plugin {name:?} has neither configuration nor path")),
        (None, path) => {
            let path = file.parent().unwrap_or(Path::new(".")).join(path);
            Ok((read(&path)?, path))
        }
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

    fn of(text: &str) -> Result<Configuration, String> {
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
            let settings = of(&text).unwrap().pod_security;
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
            "apiVersion: v1\nkind: AdmissionConfiguration\nplugins:\n- name: ResourceQuota\n  path: x\n\
            - name: PodSecurity\n  configuration:\n    apiVersion: pod-security.admission.config.k8s.io/v2\n    \
            kind: PodSecurityConfiguration\n    defaults: { enforce: strict, warn-version: '1.2', other: x }\n    \
            exemptions: { namespaces: [a, a] }\n",
        );
        let text = bad.unwrap_err();
        for word in [
            "v1/Admission",
            "plugin \"ResourceQuota\" cannot be configured",
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

    #[test]
    fn limits_of_events_and_policies_of_images() {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n";
        let events = |limits: &str| {
            format!(
                "{head}- name: EventRateLimit\n  configuration:\n    apiVersion: \
                 eventratelimit.admission.k8s.io/v1alpha1\n    kind: Configuration\n    limits: {limits}\n"
            )
        };
        let good = of(&events(
            "[{ type: Server, qps: 5, burst: 9 }, { type: User, qps: 1, burst: 2, cacheSize: 7 }]",
        ));
        assert_eq!(good.unwrap().event_rate_limits.len(), 2);
        let bad = of(&events("[{ type: Pod, qps: 0, burst: -1, cacheSize: -1 }]")).unwrap_err();
        for word in [
            "limits[0].type: Unsupported value: \"Pod\"",
            "limits[0].qps: Invalid value: 0",
            "burst",
            "cacheSize",
        ] {
            assert!(bad.contains(word), "{word}: {bad}");
        }
        assert!(of(&events("[]")).unwrap_err().contains("limits: Invalid value: null: must not be empty"));
        let images = |fields: &str| {
            of(&format!(
                "{head}- name: ImagePolicyWebhook\n  configuration: {{ imagePolicy: {{ {fields} }} }}\n"
            ))
            .map(|_| ())
            .unwrap_err()
        };
        let bad = images("kubeConfigFile: none, allowTTL: 1, denyTTL: 1801, retryBackoff: 300001");
        for word in ["imagePolicy.allowTTL: valid", "denyTTL", "retryBackoff", "imagePolicy.kubeConfigFile"] {
            assert!(bad.contains(word), "{word}: {bad}");
        }
        assert!(images("allowTtl: 5").contains("allowTtl"));
        assert!(images("denyTTL: -1").contains("kubeConfigFile: Required value"));
    }
}
