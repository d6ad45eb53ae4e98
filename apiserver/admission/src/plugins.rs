//! Which plugins there are, in which order they run, and which of them are on.

use super::configuration::Configuration;
use super::event_rate_limit::{self, EventRateLimit};
use super::image_policy;
use super::pod_security::PodSecurity;
use super::{
    MutatingStep, Plugin, ValidatingStep, certificates, declared_features, default_ingress_class,
    default_storage_class, default_toleration_seconds, limit_ranger, namespace_lifecycle, node_restriction,
    optional, pod_resize, pod_topology_labels, policy, priority, runtime_class, service_account,
    storage_object_in_use, taint_nodes, volume_resize, webhook,
};
use coracle_requests::ObjectReader;
use std::sync::Arc;

/// Plugins that hand work to a controller. Without that controller they block for ever (a node never loses its taint, a
/// claim never its finalizer), so a chain that is made for itself leaves them out; the server has them, as upstream's.
pub const NEED_CONTROLLERS: [&str; 2] = [NEEDS_NODE_LIFECYCLE, NEEDS_STORAGE_PROTECTION];

/// Its taint is taken back by a node life-cycle controller.
pub const NEEDS_NODE_LIFECYCLE: &str = "TaintNodesByCondition";

/// Its finalizers are taken back by the storage component.
pub const NEEDS_STORAGE_PROTECTION: &str = "StorageObjectInUseProtection";

const QUOTA: &str = "ResourceQuota";

/// Which plugins run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Upstream's names of plugins that are off by default (`--enable-admission-plugins`).
    pub enabled: Vec<String>,
    /// Upstream's names (`--disable-admission-plugins`).
    pub disabled: Vec<String>,
    pub configuration: Configuration,
}

impl Default for Config {
    /// Upstream's default set but for [`NEED_CONTROLLERS`].
    fn default() -> Self {
        Self {
            enabled: Vec::new(),
            disabled: NEED_CONTROLLERS.map(str::to_owned).to_vec(),
            configuration: Configuration::default(),
        }
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    #[error("{flag} plugin \"{name}\" is unknown")]
    Unknown { flag: &'static str, name: String },
    #[error("[{0}] in enable-admission-plugins and disable-admission-plugins overlapped")]
    Both(String),
    #[error("enable-admission-plugins plugin \"{0}\" is not available in this server")]
    Unavailable(String),
    #[error("enable-admission-plugins plugin \"{0}\" needs a configuration in admission-control-config-file")]
    Unconfigured(String),
}

enum Place {
    /// Of upstream's default set.
    On(fn(&Config) -> Box<dyn Plugin>),
    Off(fn(&Config) -> Box<dyn Plugin>),
    /// Behind the plugins: what users configure, on like upstream's.
    Mutating(fn(&Arc<dyn ObjectReader>) -> Box<dyn MutatingStep>),
    Validating(fn(&Arc<dyn ObjectReader>) -> Box<dyn ValidatingStep>),
    /// Before those, off by default, and made only of its configuration.
    OffStep(fn(&Config) -> Option<Box<dyn ValidatingStep>>),
    /// Runs behind all others, and not as a [`Plugin`].
    Quota,
    /// Upstream has it, this server does not.
    Absent,
}

use Place::{Absent, Mutating, Off, OffStep, On, Quota, Validating};

/// Upstream's order: quota last, because it must only count what everybody else let through.
const ALL: &[(&str, Place)] = &[
    ("AlwaysAdmit", Off(|_| Box::new(optional::AlwaysAdmit))),
    ("NamespaceAutoProvision", Absent),
    ("NamespaceLifecycle", On(|_| Box::new(namespace_lifecycle::NamespaceLifecycle::default()))),
    ("NamespaceExists", Off(|_| Box::new(optional::NamespaceExists))),
    ("LimitPodHardAntiAffinityTopology", Off(|_| Box::new(optional::LimitPodHardAntiAffinityTopology))),
    ("LimitRanger", On(|_| Box::new(limit_ranger::LimitRanger))),
    ("ServiceAccount", On(|_| Box::new(service_account::ServiceAccount))),
    ("NodeRestriction", On(|_| Box::new(node_restriction::NodeRestriction))),
    (NEEDS_NODE_LIFECYCLE, On(|_| Box::new(taint_nodes::TaintNodesByCondition))),
    ("AlwaysPullImages", Off(|_| Box::new(optional::AlwaysPullImages))),
    (image_policy::NAME, OffStep(Config::image_policy)),
    (
        "PodSecurity",
        On(|config| Box::new(PodSecurity { settings: config.configuration.pod_security.clone() })),
    ),
    ("PodNodeSelector", Off(|_| Box::new(optional::PodNodeSelector))),
    ("Priority", On(|_| Box::new(priority::Priority))),
    ("DefaultTolerationSeconds", On(|_| Box::new(default_toleration_seconds::DefaultTolerationSeconds))),
    ("PodTolerationRestriction", Absent),
    (
        event_rate_limit::NAME,
        Off(|config| Box::new(EventRateLimit::new(&config.configuration.event_rate_limits))),
    ),
    ("ExtendedResourceToleration", Off(|_| Box::new(optional::ExtendedResourceToleration))),
    ("DefaultStorageClass", On(|_| Box::new(default_storage_class::DefaultStorageClass))),
    (NEEDS_STORAGE_PROTECTION, On(|_| Box::new(storage_object_in_use::StorageObjectInUseProtection))),
    (
        "OwnerReferencesPermissionEnforcement",
        Off(|_| Box::new(optional::OwnerReferencesPermissionEnforcement)),
    ),
    ("PersistentVolumeClaimResize", On(|_| Box::new(volume_resize::PersistentVolumeClaimResize))),
    ("RuntimeClass", On(|_| Box::new(runtime_class::RuntimeClass))),
    ("CertificateApproval", On(|_| Box::new(certificates::CertificateApproval))),
    ("CertificateSigning", On(|_| Box::new(certificates::CertificateSigning))),
    ("ClusterTrustBundleAttest", Absent),
    ("CertificateSubjectRestriction", On(|_| Box::new(certificates::CertificateSubjectRestriction))),
    ("DefaultIngressClass", On(|_| Box::new(default_ingress_class::DefaultIngressClass))),
    ("DenyServiceExternalIPs", Off(|_| Box::new(optional::DenyServiceExternalIPs))),
    ("PodTopologyLabels", On(|_| Box::new(pod_topology_labels::PodTopologyLabels))),
    ("PodGroupWorkloadExists", Absent),
    ("NodeDeclaredFeatureValidator", On(|_| Box::new(declared_features::NodeDeclaredFeatureValidator))),
    ("JobValidation", Absent),
    ("PodResizeValidator", On(|_| Box::new(pod_resize::PodResizeValidator))),
    (policy::MUTATING, Mutating(|_| Box::new(policy::MutatingPolicies::default()))),
    (webhook::MUTATING, Mutating(|read| Box::new(webhook::Mutating::new(read.clone())))),
    (policy::VALIDATING, Validating(|_| Box::new(policy::ValidatingPolicies::default()))),
    (webhook::VALIDATING, Validating(|read| Box::new(webhook::Validating::new(read.clone())))),
    (QUOTA, Quota),
    ("AlwaysDeny", Off(|_| Box::new(optional::AlwaysDeny))),
];

impl Config {
    fn image_policy(&self) -> Option<Box<dyn ValidatingStep>> {
        let policy = self.configuration.image_policy.clone()?;
        Some(Box::new(image_policy::Step(policy)))
    }

    /// What an enabled plugin cannot do without.
    fn is_configured(&self, name: &str) -> bool {
        match name {
            event_rate_limit::NAME => !self.configuration.event_rate_limits.is_empty(),
            image_policy::NAME => self.configuration.image_policy.is_some(),
            _ => true,
        }
    }

    fn check(&self) -> Result<(), PluginError> {
        let place = |name: &String| ALL.iter().find(|(known, _)| known == name).map(|(_, place)| place);
        for name in &self.enabled {
            match place(name) {
                None => {
                    let (flag, name) = ("enable-admission-plugins", name.clone());
                    return Err(PluginError::Unknown { flag, name });
                }
                Some(Absent) => return Err(PluginError::Unavailable(name.clone())),
                Some(_) if !self.is_configured(name) => {
                    return Err(PluginError::Unconfigured(name.clone()));
                }
                Some(_) => {}
            }
        }
        for name in &self.disabled {
            if place(name).is_none() {
                let (flag, name) = ("disable-admission-plugins", name.clone());
                return Err(PluginError::Unknown { flag, name });
            }
        }
        match self.enabled.iter().find(|name| self.disabled.contains(name)) {
            Some(name) => Err(PluginError::Both(name.clone())),
            None => Ok(()),
        }
    }

    /// The plugins that run, in order; an error for names that nobody knows.
    pub(super) fn plugins(&self) -> Result<Vec<Box<dyn Plugin>>, PluginError> {
        self.check()?;
        let listed = |list: &[String], name: &str| list.iter().any(|n| n == name);
        let chosen = ALL.iter().filter_map(|(name, place)| match place {
            On(make) if !listed(&self.disabled, name) => Some(make(self)),
            Off(make) if listed(&self.enabled, name) => Some(make(self)),
            _ => None,
        });
        Ok(chosen.collect())
    }

    /// The steps behind the plugins, in order.
    #[allow(clippy::type_complexity, reason = "two lists, used once")]
    pub(super) fn steps(
        &self,
        read: &Arc<dyn ObjectReader>,
    ) -> (Vec<Box<dyn MutatingStep>>, Vec<Box<dyn ValidatingStep>>) {
        let (mut mutating, mut validating) = (Vec::new(), Vec::new());
        for (name, place) in ALL {
            match place {
                _ if self.disabled.iter().any(|disabled| disabled == name) => {}
                Mutating(make) => mutating.push(make(read)),
                Validating(make) => validating.push(make(read)),
                OffStep(make) if self.enabled.iter().any(|enabled| enabled == name) => {
                    validating.extend(make(self));
                }
                _ => {}
            }
        }
        (mutating, validating)
    }

    pub(super) fn quota(&self) -> bool {
        !self.disabled.iter().any(|name| name == QUOTA)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(enabled: &[&str], disabled: &[&str]) -> Result<Vec<&'static str>, String> {
        let own = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect();
        let config = Config { enabled: own(enabled), disabled: own(disabled), ..Config::default() };
        let plugins = config.plugins().map_err(|e| e.to_string())?;
        Ok(plugins.iter().map(|p| p.name()).collect())
    }

    #[test]
    fn the_default_set_is_upstreams() {
        assert_eq!(
            names(&[], &[]).unwrap(),
            [
                "NamespaceLifecycle",
                "LimitRanger",
                "ServiceAccount",
                "NodeRestriction",
                "TaintNodesByCondition",
                "PodSecurity",
                "Priority",
                "DefaultTolerationSeconds",
                "DefaultStorageClass",
                "StorageObjectInUseProtection",
                "PersistentVolumeClaimResize",
                "RuntimeClass",
                "CertificateApproval",
                "CertificateSigning",
                "CertificateSubjectRestriction",
                "DefaultIngressClass",
                "PodTopologyLabels",
                "NodeDeclaredFeatureValidator",
                "PodResizeValidator",
            ]
        );
        let default = Config::default().plugins().unwrap();
        assert!(!default.iter().any(|p| NEED_CONTROLLERS.contains(&p.name())));
        assert!(Config::default().quota());
    }

    #[test]
    fn every_plugin_answers_to_its_name() {
        let config = Config::default();
        for (name, place) in ALL {
            if let On(make) | Off(make) = place {
                assert_eq!(make(&config).name(), *name);
            }
        }
    }

    #[test]
    fn names_are_checked() {
        assert!(!names(&[], &["Priority"]).unwrap().contains(&"Priority"));
        assert!(names(&["AlwaysPullImages"], &[]).unwrap().contains(&"AlwaysPullImages"));
        for (enabled, disabled, message) in [
            (&["Prioritise"][..], &[][..], "enable-admission-plugins plugin \"Prioritise\" is unknown"),
            (&[], &["Prioritise"], "disable-admission-plugins plugin \"Prioritise\" is unknown"),
            (
                &["Priority"],
                &["Priority"],
                "[Priority] in enable-admission-plugins and disable-admission-plugins overlapped",
            ),
            (
                &["PodTolerationRestriction"],
                &[],
                "enable-admission-plugins plugin \"PodTolerationRestriction\" is not available in this server",
            ),
            (
                &["EventRateLimit"],
                &[],
                "enable-admission-plugins plugin \"EventRateLimit\" needs a configuration in \
                 admission-control-config-file",
            ),
            (
                &["ImagePolicyWebhook"],
                &[],
                "enable-admission-plugins plugin \"ImagePolicyWebhook\" needs a configuration in \
                 admission-control-config-file",
            ),
        ] {
            assert_eq!(names(enabled, disabled).unwrap_err(), message);
        }
    }
}
