//! How the node confines its pods, under the names of upstream's kubelet flags and fields.

use clap::Args;
use coracle_kubelet::config::{NodeConfiguration, NodeSettings};

#[derive(Args, Clone, Debug, Default)]
pub struct KubeletArgs {
    /// Pods that the node takes [default: 110]
    #[arg(long, value_name = "N")]
    pub max_pods: Option<i64>,
    /// Processes and threads that one pod may have; -1 for no limit [default: 4096]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub pod_max_pids: Option<i64>,
    /// Whether containers whose pod names no seccomp profile get the runtime's default one [default: true where the kernel
    /// has seccomp]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub seccomp_default: Option<bool>,
    /// Refuse to start where kernel settings differ from what the kubelet wants, instead of setting them [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub protect_kernel_defaults: Option<bool>,
    /// When a pod needs credentials for an image that is there already: NeverVerify, NeverVerifyPreloadedImages,
    /// NeverVerifyAllowlistedImages or AlwaysVerify [default: NeverVerifyPreloadedImages]
    #[arg(long, value_name = "POLICY")]
    pub image_pull_credentials_verification_policy: Option<String>,
    /// Images that pods may use without credentials with NeverVerifyAllowlistedImages: registry/name or registry/path/*
    #[arg(long, value_name = "IMAGE,...", value_delimiter = ',')]
    pub preloaded_images_verification_allowlist: Option<Vec<String>>,
}

impl KubeletArgs {
    /// A flag wins over the file's field. Mistakes go to `mistakes`.
    pub fn settings(self, file: NodeConfiguration, mistakes: &mut Vec<String>) -> NodeSettings {
        let written = NodeConfiguration {
            max_pods: self.max_pods.or(file.max_pods),
            pod_pids_limit: self.pod_max_pids.or(file.pod_pids_limit),
            seccomp_default: self.seccomp_default.or(file.seccomp_default),
            protect_kernel_defaults: self.protect_kernel_defaults.or(file.protect_kernel_defaults),
            image_pull_credentials_verification_policy: self
                .image_pull_credentials_verification_policy
                .or(file.image_pull_credentials_verification_policy),
            preloaded_images_verification_allowlist: self
                .preloaded_images_verification_allowlist
                .or(file.preloaded_images_verification_allowlist),
        };
        NodeSettings::read(&written).unwrap_or_else(|more| {
            mistakes.extend(more);
            NodeSettings::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn flags_win_over_the_file() {
        let line = [
            "coracle",
            "server",
            "--pod-max-pids",
            "-1",
            "--seccomp-default=false",
            "--protect-kernel-defaults",
            "--max-pods",
            "250",
        ];
        let Command::Server(args) = Cli::parse_from(line).command else { panic!("another command") };
        let file = NodeConfiguration {
            pod_pids_limit: Some(100),
            image_pull_credentials_verification_policy: Some("AlwaysVerify".to_owned()),
            ..NodeConfiguration::default()
        };
        let mut mistakes = Vec::new();
        let settings = args.kubelet.settings(file, &mut mistakes);
        assert_eq!((settings.pod_pids_limit, settings.seccomp_default), (None, Some(false)));
        assert_eq!(settings.max_pods, 250);
        assert!(settings.protect_kernel_defaults && mistakes.is_empty(), "{mistakes:?}");
        let policy = settings.configuration().image_pull_credentials_verification_policy;
        assert_eq!(policy.as_deref(), Some("AlwaysVerify"));
    }
}
