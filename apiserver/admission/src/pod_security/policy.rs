//! Levels, versions, and the labels of a namespace that choose them
//! (<https://kubernetes.io/docs/concepts/security/pod-security-admission/#pod-security-admission-labels-for-namespaces>).

use coracle_api::FieldError;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

pub const PREFIX: &str = "pod-security.kubernetes.io/";

/// In order of strictness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "privileged" => Some(Self::Privileged),
            "baseline" => Some(Self::Baseline),
            "restricted" => Some(Self::Restricted),
            _ => None,
        }
    }
}

/// Which release's standards hold: all newest rules, or those of Kubernetes 1.N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Latest,
    Minor(u32),
}

impl Version {
    /// `latest` or `v1.N`, without leading zeros.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "latest" {
            return Some(Self::Latest);
        }
        let minor = text.strip_prefix("v1.")?;
        let plain = minor == "0" || (!minor.starts_with('0') && minor.bytes().all(|b| b.is_ascii_digit()));
        if plain { minor.parse().ok().map(Self::Minor) } else { None }
    }

    /// The N of 1.N; the newest is newer than any.
    pub fn minor(self) -> u32 {
        match self {
            Self::Latest => u32::MAX,
            Self::Minor(minor) => minor,
        }
    }
}

/// What one mode asks for; printed as `restricted:latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standard {
    pub level: Level,
    pub version: Version,
}

impl Default for Standard {
    fn default() -> Self {
        Self { level: Level::Privileged, version: Version::Latest }
    }
}

/// The newest release whose rules are known.
const NEWEST: u32 = 36;

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

impl Standard {
    /// The version as metrics show it.
    pub fn counted_version(self) -> Cow<'static, str> {
        match self.version {
            // No release restricts it.
            _ if self.level == Level::Privileged => "latest".into(),
            Version::Latest => "latest".into(),
            Version::Minor(minor) if minor > NEWEST => "future".into(),
            Version::Minor(minor) => format!("v1.{minor}").into(),
        }
    }
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.level.name();
        match self.version {
            Version::Latest => write!(f, "{level}:latest"),
            Version::Minor(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

/// The three modes of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub enforce: Standard,
    pub audit: Standard,
    pub warn: Standard,
}

impl Policy {
    /// Of a namespace's labels, and what is wrong with them. A broken `enforce` is the strictest level, a broken
    /// `audit` or `warn` none. Who enforces without a word about warnings is warned of what is enforced.
    pub fn of_labels(labels: &Value, defaults: Self) -> (Self, Vec<FieldError>) {
        let mut errors = Vec::new();
        let mut policy = defaults;
        let enforced = read_level(labels, "enforce", &mut errors);
        match enforced {
            Some(Ok(level)) => policy.enforce.level = level,
            Some(Err(())) => policy.enforce.level = Level::Restricted,
            None => {}
        }
        read_version(labels, "enforce-version", &mut policy.enforce, &mut errors);
        if let Some(level) = read_level(labels, "audit", &mut errors) {
            policy.audit.level = level.unwrap_or(Level::Privileged);
        }
        read_version(labels, "audit-version", &mut policy.audit, &mut errors);
        match read_level(labels, "warn", &mut errors) {
            Some(level) => policy.warn.level = level.unwrap_or(Level::Privileged),
            None if matches!(enforced, Some(Ok(_))) && policy.enforce.level > policy.warn.level => {
                policy.warn = policy.enforce;
            }
            None => {}
        }
        read_version(labels, "warn-version", &mut policy.warn, &mut errors);
        (policy, errors)
    }

    pub fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|s| s.level == Level::Privileged)
    }
}

fn read_level(labels: &Value, name: &str, errors: &mut Vec<FieldError>) -> Option<Result<Level, ()>> {
    let key = format!("{PREFIX}{name}");
    let text = labels[&key].as_str()?;
    let level = Level::parse(text);
    if level.is_none() {
        let field = format!("metadata.labels[{key}]");
        let detail = "must be one of privileged, baseline, restricted";
        errors.push(FieldError::invalid(field, &text.into(), detail));
    }
    Some(level.ok_or(()))
}

fn read_version(labels: &Value, name: &str, standard: &mut Standard, errors: &mut Vec<FieldError>) {
    let key = format!("{PREFIX}{name}");
    let Some(text) = labels[&key].as_str() else { return };
    standard.version = Version::parse(text).unwrap_or_else(|| {
        let field = format!("metadata.labels[{key}]");
        errors.push(FieldError::invalid(field, &text.into(), "must be \"latest\" or \"v1.x\""));
        Version::Latest
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(labels: &[(&str, &str)]) -> (Policy, Vec<FieldError>) {
        let mut map = json!({});
        for (name, value) in labels {
            map[format!("{PREFIX}{name}")] = (*value).into();
        }
        Policy::of_labels(&map, Policy::default())
    }

    #[test]
    fn versions() {
        assert_eq!(Version::parse("v1.25"), Some(Version::Minor(25)));
        assert_eq!(Version::parse("latest"), Some(Version::Latest));
        for bad in ["", "1.25", "v1", "v1.", "v1.025", "v2.0", "v1.x", "v1.+5"] {
            assert_eq!(Version::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn enforcement_warns_too() {
        let (policy, errors) = of(&[("enforce", "restricted"), ("enforce-version", "v1.25")]);
        assert!(errors.is_empty());
        assert_eq!(policy.warn.to_string(), "restricted:v1.25");
        assert_eq!(policy.audit, Standard::default());
        let (policy, _) = of(&[("enforce", "restricted"), ("warn", "privileged")]);
        assert_eq!(policy.warn, Standard::default());
        assert!(!policy.is_privileged());
    }

    #[test]
    fn broken_labels_fail_closed_where_it_counts() {
        let (policy, errors) =
            of(&[("enforce", "x"), ("audit", "y"), ("warn", "z"), ("warn-version", "1.2")]);
        assert_eq!(policy.enforce.level, Level::Restricted);
        assert_eq!((policy.audit.level, policy.warn.level), (Level::Privileged, Level::Privileged));
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts[0],
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"x\": must be one of privileged, \
             baseline, restricted"
        );
        assert!(texts[3].ends_with("must be \"latest\" or \"v1.x\""), "{texts:?}");
    }
}
