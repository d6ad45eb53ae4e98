//! How the node confines its pods and itself, under the names of upstream's KubeletConfiguration.

use super::images::{Verification, VerificationPolicy};
use serde::{Deserialize, Serialize};

/// What the configuration may say; what is absent has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pods: Option<i64>,
    /// 0 for no limit but `maxPods`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods_per_core: Option<i64>,
    /// -1 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_pids_limit: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seccomp_default: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protect_kernel_defaults: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_credentials_verification_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preloaded_images_verification_allowlist: Option<Vec<String>>,
}

/// Pods on the node; upstream's.
const MAX_PODS: u32 = 110;
/// Users of pods with their own are 32-bit numbers, of which each pod gets 65536 and the node keeps as many.
const MOST_PODS: u32 = 65_534;
/// Processes and threads of one pod. Far more than ordinary programs have, and an eighth of what Linux gives a machine by
/// default (32768): one pod that forks without end takes neither the node nor the other pods with it. Upstream has no limit
/// of its own.
const POD_PIDS_LIMIT: u64 = 4096;
/// The least that a limit may be: a container's own start takes about ten.
const LEAST_PIDS: i64 = 20;

/// Checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// How many pods the node takes.
    pub max_pods: u32,
    /// And how many for each CPU; 0: as many.
    pub pods_per_core: u32,
    /// Processes and threads that a pod may have at once; `None`: any number.
    pub pod_pids_limit: Option<u64>,
    /// Whether a container whose pod names no seccomp profile gets the runtime's. `None`: where the kernel can. Upstream
    /// leaves such containers unconfined.
    pub seccomp_default: Option<bool>,
    /// Whether kernel settings that are not as the kubelet wants them keep it from starting; else it sets them.
    pub protect_kernel_defaults: bool,
    pub verification: Verification,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            max_pods: MAX_PODS,
            pods_per_core: 0,
            pod_pids_limit: Some(POD_PIDS_LIMIT),
            seccomp_default: None,
            protect_kernel_defaults: false,
            verification: Verification::default(),
        }
    }
}

impl NodeSettings {
    /// # Errors
    /// All mistakes, each with its field.
    pub fn read(written: &NodeConfiguration) -> Result<Self, Vec<String>> {
        let mut mistakes = Vec::new();
        let pod_pids_limit = match written.pod_pids_limit {
            None => Some(POD_PIDS_LIMIT),
            Some(-1) => None,
            Some(limit) if limit >= LEAST_PIDS => u64::try_from(limit).ok(),
            Some(limit) => {
                mistakes.push(format!(
                    "podPidsLimit: {limit} is neither -1, for no limit, nor at least {LEAST_PIDS}"
                ));
                None
            }
        };
        let max_pods = written.max_pods.unwrap_or(i64::from(MAX_PODS));
        let most = u32::try_from(max_pods).ok().filter(|pods| *pods <= MOST_PODS);
        if most.is_none() {
            mistakes.push(format!("maxPods: {max_pods} is not between 0 and {MOST_PODS}"));
        }
        let per_core = written.pods_per_core.unwrap_or(0);
        let pods_per_core = u32::try_from(per_core).ok().filter(|pods| *pods <= MOST_PODS);
        if pods_per_core.is_none() {
            mistakes.push(format!("podsPerCore: {per_core} is not between 0 and {MOST_PODS}"));
        }
        let verification = verification(written, &mut mistakes);
        let settings = Self {
            max_pods: most.unwrap_or(MAX_PODS),
            pods_per_core: pods_per_core.unwrap_or(0),
            pod_pids_limit,
            seccomp_default: written.seccomp_default,
            protect_kernel_defaults: written.protect_kernel_defaults.unwrap_or(false),
            verification,
        };
        if mistakes.is_empty() { Ok(settings) } else { Err(mistakes) }
    }

    /// How many pods a machine with so many CPUs takes.
    pub fn pods(&self, cpus: u64) -> u64 {
        let per_core = u64::from(self.pods_per_core);
        let most = u64::from(self.max_pods);
        if per_core == 0 { most } else { most.min(per_core.saturating_mul(cpus)) }
    }

    /// The settings in force, as a configuration would say them.
    pub fn configuration(&self) -> NodeConfiguration {
        let policy = POLICIES.iter().find(|(_, policy)| *policy == self.verification.policy);
        let allowlist = &self.verification.allowlist;
        NodeConfiguration {
            max_pods: Some(i64::from(self.max_pods)),
            pods_per_core: Some(i64::from(self.pods_per_core)),
            pod_pids_limit: Some(
                self.pod_pids_limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(-1),
            ),
            seccomp_default: self.seccomp_default,
            protect_kernel_defaults: Some(self.protect_kernel_defaults),
            image_pull_credentials_verification_policy: policy.map(|(name, _)| (*name).to_owned()),
            preloaded_images_verification_allowlist: (!allowlist.is_empty()).then(|| allowlist.clone()),
        }
    }
}

const POLICIES: [(&str, VerificationPolicy); 4] = [
    ("NeverVerify", VerificationPolicy::NeverVerify),
    ("NeverVerifyPreloadedImages", VerificationPolicy::NeverVerifyPreloadedImages),
    ("NeverVerifyAllowlistedImages", VerificationPolicy::NeverVerifyAllowlistedImages),
    ("AlwaysVerify", VerificationPolicy::AlwaysVerify),
];

fn verification(written: &NodeConfiguration, mistakes: &mut Vec<String>) -> Verification {
    let name = written.image_pull_credentials_verification_policy.as_deref();
    let policy = match name.map(|name| POLICIES.iter().find(|(known, _)| *known == name)) {
        None => VerificationPolicy::default(),
        Some(Some((_, policy))) => *policy,
        Some(None) => {
            let known = POLICIES.map(|(name, _)| name).join(", ");
            mistakes.push(format!(
                "imagePullCredentialsVerificationPolicy: unknown policy {:?}, known are {known}",
                name.unwrap_or_default()
            ));
            VerificationPolicy::default()
        }
    };
    let allowlist = written.preloaded_images_verification_allowlist.clone().unwrap_or_default();
    if !allowlist.is_empty() && policy != VerificationPolicy::NeverVerifyAllowlistedImages {
        mistakes.push(
            "preloadedImagesVerificationAllowlist: it needs imagePullCredentialsVerificationPolicy \
             NeverVerifyAllowlistedImages"
                .to_owned(),
        );
    }
    for listed in &allowlist {
        let (name, all_below) =
            listed.strip_suffix("/*").map_or((listed.as_str(), false), |name| (name, true));
        // A registry's port is no tag.
        let last = name.rsplit('/').next().filter(|_| !all_below || name.contains('/')).unwrap_or_default();
        let tagged = name.contains('@') || last.contains(':');
        if !super::images::valid_name(name) || tagged {
            mistakes.push(format!(
                "preloadedImagesVerificationAllowlist: {listed:?} is no image without tag and digest, nor one that \
                 ends with /*"
            ));
        }
    }
    Verification { policy, allowlist }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_shown_again() {
        let written = NodeConfiguration {
            max_pods: Some(250),
            pods_per_core: Some(10),
            pod_pids_limit: Some(-1),
            seccomp_default: Some(false),
            protect_kernel_defaults: Some(true),
            image_pull_credentials_verification_policy: Some("NeverVerifyAllowlistedImages".to_owned()),
            preloaded_images_verification_allowlist: Some(vec![
                "r.example:5000/base/*".to_owned(),
                "busybox".to_owned(),
            ]),
        };
        let read = NodeSettings::read(&written).unwrap();
        assert_eq!((read.pod_pids_limit, read.seccomp_default), (None, Some(false)));
        assert_eq!((read.pods(4), read.pods(64)), (40, 250));
        assert_eq!(read.configuration(), written);
        assert_eq!(NodeSettings::read(&NodeConfiguration::default()).unwrap(), NodeSettings::default());
        assert_eq!(NodeSettings::default().configuration().pod_pids_limit, Some(4096));
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let bad = NodeConfiguration {
            max_pods: Some(70_000),
            pod_pids_limit: Some(0),
            image_pull_credentials_verification_policy: Some("Sometimes".to_owned()),
            preloaded_images_verification_allowlist: Some(vec!["busybox:1".to_owned(), "UPPER".to_owned()]),
            ..NodeConfiguration::default()
        };
        let text = NodeSettings::read(&bad).unwrap_err().join("\n");
        for word in
            ["maxPods: 70000", "podPidsLimit: 0", "\"Sometimes\"", "it needs", "\"busybox:1\"", "\"UPPER\""]
        {
            assert!(text.contains(word), "{word} is missing from {text}");
        }
    }
}
