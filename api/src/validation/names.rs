//! Names: of objects, labels, keys and ports.

use super::{
    EMPTY_MESSAGE, LABEL_MAX_BYTES, SUBDOMAIN_MAX_BYTES, lower_alphanumeric, lower_alphanumeric_or_dash,
    max_length_message, max_name_message, regex_message, shaped,
};

const LABEL_REGEX: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_REGEX: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

pub(super) fn is_label(value: &str) -> bool {
    shaped(value, lower_alphanumeric, lower_alphanumeric_or_dash)
}

pub(super) fn is_subdomain(value: &str) -> bool {
    value.split('.').all(is_label)
}

fn too_long(value: &str, max: usize) -> Vec<String> {
    if value.len() > max { vec![max_name_message(max)] } else { Vec::new() }
}

pub fn dns1123_label(value: &str) -> Vec<String> {
    let mut errors = too_long(value, LABEL_MAX_BYTES);
    if !is_label(value) {
        errors.push(if is_subdomain(value) {
            "must not contain dots".to_owned()
        } else {
            regex_message(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                 start and end with an alphanumeric character",
                LABEL_REGEX,
                &["my-name", "123-abc"],
            )
        });
    }
    errors
}

pub fn dns1123_subdomain(value: &str) -> Vec<String> {
    let mut errors = too_long(value, SUBDOMAIN_MAX_BYTES);
    if !is_subdomain(value) {
        errors.push(regex_message(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
             must start and end with an alphanumeric character",
            SUBDOMAIN_REGEX,
            &["example.com"],
        ));
    }
    errors
}

/// As [`dns1123_subdomain`], of a search domain: its labels may hold underscores, and begin with one.
pub fn dns1123_subdomain_with_underscore(value: &str) -> Vec<String> {
    const LABEL: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
    let mut errors = too_long(value, SUBDOMAIN_MAX_BYTES);
    let is_label = |label: &str| {
        let rest = label.strip_prefix('_').unwrap_or(label);
        let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        super::shaped(rest, edge, |b| {
            b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_')
        })
    };
    if !value.split('.').all(is_label) {
        errors.push(regex_message(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and \
             must start and end with an alphanumeric character",
            &format!(r"{LABEL}(\.{LABEL})*"),
            &["example.com"],
        ));
    }
    errors
}

pub fn wildcard_dns1123_subdomain(value: &str) -> Vec<String> {
    let mut errors = too_long(value, SUBDOMAIN_MAX_BYTES);
    if !value.strip_prefix("*.").is_some_and(is_subdomain) {
        errors.push(regex_message(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
             consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!(r"\*\.{SUBDOMAIN_REGEX}"),
            &["*.example.com"],
        ));
    }
    errors
}

pub fn dns1035_label(value: &str) -> Vec<String> {
    let mut errors = too_long(value, LABEL_MAX_BYTES);
    if !is_label(value) || !value.starts_with(|c: char| c.is_ascii_lowercase()) {
        errors.push(regex_message(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

const LABEL_KEY_REGEX: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

fn is_label_key(value: &str) -> bool {
    shaped(value, |b| b.is_ascii_alphanumeric(), |b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn label_key_message(head: &str) -> String {
    regex_message(
        &format!(
            "{head} must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character"
        ),
        LABEL_KEY_REGEX,
        &["MyName", "my.name", "123-abc"],
    )
}

/// The key of a label or annotation, a finalizer, a resource name: a name with an optional DNS prefix.
pub fn qualified_name(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match value.split_once('/') {
        None => value,
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "{} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                label_key_message("a valid label key")
            )];
        }
        Some(("", name)) => {
            errors.push(format!("prefix part {EMPTY_MESSAGE}"));
            name
        }
        Some((prefix, name)) => {
            errors.extend(dns1123_subdomain(prefix).iter().map(|e| format!("prefix part {e}")));
            name
        }
    };
    if name.is_empty() {
        errors.push(format!("name part {EMPTY_MESSAGE}"));
    } else if name.len() > LABEL_MAX_BYTES {
        errors.push(format!("name part {}", max_length_message(LABEL_MAX_BYTES)));
    }
    if !is_label_key(name) {
        errors.push(label_key_message("name part"));
    }
    errors
}

pub fn label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_MAX_BYTES {
        errors.push(max_length_message(LABEL_MAX_BYTES));
    }
    if !value.is_empty() && !is_label_key(value) {
        errors.push(regex_message(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
             must start and end with an alphanumeric character",
            &format!("({LABEL_KEY_REGEX})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(value: &str) -> Vec<String> {
    let mut errors = too_long(value, SUBDOMAIN_MAX_BYTES);
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if !shaped(value, allowed, allowed) {
        errors.push(regex_message(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    errors.extend(parent_directory(value));
    errors
}

/// Values that would climb out of a directory if they became a file name.
pub(super) fn parent_directory(value: &str) -> Option<String> {
    match value {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        _ if value.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

/// A name that is only required to be one segment of a path (RBAC).
pub fn path_segment_name(value: &str) -> Vec<String> {
    if matches!(value, "." | "..") {
        return vec![format!("may not be '{value}'")];
    }
    path_segment_prefix(value)
}

/// As [`path_segment_name`], for a `generateName`.
pub fn path_segment_prefix(value: &str) -> Vec<String> {
    let illegal = ["/", "%"].into_iter().filter(|c| value.contains(c));
    illegal.map(|c| format!("may not contain '{c}'")).collect()
}

/// The name of a port (RFC 6335, lower case only).
pub fn port_name(value: &str) -> Vec<String> {
    let mut errors = too_long(value, 15);
    if !shaped(value, lower_alphanumeric_or_dash, lower_alphanumeric_or_dash) {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !value.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// Whether a resource is one of somebody outside Kubernetes (upstream's `IsExtendedResourceName`): its name has a domain
/// that is not Kubernetes' own, and can be the name of a quota too.
pub fn is_extended_resource(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    !native && !name.starts_with("requests.") && qualified_name(&format!("requests.{name}")).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Check = fn(&str) -> Vec<String>;

    #[test]
    fn accepted_and_refused() {
        let long = "a".repeat(64);
        let cases: &[(Check, &[&str], &[&str])] = &[
            (dns1123_label, &["a", "0", "a-b", "1-1"], &["", "-a", "a-", "A", "a.b", "a_b", &long]),
            (dns1123_subdomain, &["a", "a.b", "1.2-3"], &["", ".", "a.", "a..b", ".a", "a.-b", "A.b"]),
            (dns1035_label, &["a", "a1", "a-1"], &["", "1a", "a-", "a.b"]),
            (qualified_name, &["a", "A_b.c-d", "x.y/z"], &["", "/a", "a/", "a/b/c", "-a", "X/a", "a b"]),
            (label_value, &["", "a", "A_b.c-d"], &["-a", "a-", "a/b", "é", &long]),
            (config_map_key, &["a", ".a", "-", "A_1"], &["", ".", "..", "..a", "a/b"]),
            (path_segment_name, &["a", "system:x", "..."], &[".", "..", "a/b", "a%b"]),
            (port_name, &["http", "a-1"], &["", "80", "a--b", "-a", "abcdefghijklmnop", "A"]),
            (wildcard_dns1123_subdomain, &["*.a.b"], &["*", "*.", "a.b", "*.*.a"]),
        ];
        for (check, good, bad) in cases {
            good.iter().for_each(|v| assert_eq!(check(v), Vec::<String>::new(), "{v:?}"));
            bad.iter().for_each(|v| assert!(!check(v).is_empty(), "{v:?} was accepted"));
        }
    }

    #[test]
    fn words() {
        assert_eq!(
            dns1123_label("My_Name"),
            [
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                 start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                 validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            ]
        );
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns1123_subdomain(&"a".repeat(254)), ["must be no more than 253 characters"]);
        assert_eq!(label_value(&"a".repeat(64)), ["must be no more than 63 bytes"]);
        assert_eq!(port_name(&"a".repeat(16)), ["must be no more than 15 characters"]);
        assert_eq!(path_segment_name("a/b"), ["may not contain '/'"]);
        assert_eq!(qualified_name("/a"), ["prefix part must be non-empty"]);
    }

    proptest! {
        #[test]
        fn labels_are_subdomains_and_label_values(value in "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?") {
            prop_assert!(dns1123_label(&value).is_empty());
            prop_assert!(dns1123_subdomain(&value).is_empty());
            prop_assert!(label_value(&value).is_empty());
            let qualified = format!("{value}/{value}");
            prop_assert!(qualified_name(&qualified).is_empty());
        }

        #[test]
        fn anything_is_judged_without_panic(value in ".*") {
            let checks: [Check; 6] =
                [dns1123_label, dns1035_label, qualified_name, label_value, config_map_key, port_name];
            for check in checks {
                if check(&value).is_empty() {
                    prop_assert!(value.is_ascii());
                }
            }
        }
    }
}
