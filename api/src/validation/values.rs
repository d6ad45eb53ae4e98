//! Values: addresses, numbers, identifiers.

use super::names::{dns1123_subdomain, parent_directory};
use super::{EMPTY_MESSAGE, range_message, regex_message};
use std::net::{IpAddr, Ipv6Addr};

/// What is wrong with an address or an address block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressMistake {
    /// It says no address.
    Unreadable(&'static str),
    /// It is written in a way that earlier versions of Kubernetes took: an object that has such a one may keep it.
    Form(&'static str),
}

impl AddressMistake {
    pub fn detail(self) -> &'static str {
        match self {
            Self::Unreadable(detail) | Self::Form(detail) => detail,
        }
    }
}

/// An address as it was once read, and whether its IPv4 part has leading zeros, which some read as octal numbers.
fn lenient(value: &str) -> Option<(IpAddr, bool)> {
    if let Ok(ip) = value.parse() {
        return Some((ip, false));
    }
    let start = value.rfind(':').map_or(0, |colon| colon + 1);
    let plain = |part: &str| {
        let digits = part.trim_start_matches('0');
        if digits.is_empty() && !part.is_empty() { "0".to_owned() } else { digits.to_owned() }
    };
    let parts: Vec<String> = value[start..].split('.').map(plain).collect();
    Some((format!("{}{}", &value[..start], parts.join(".")).parse().ok().filter(|_| parts.len() == 4)?, true))
}

fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

/// An IPv4 or IPv6 address without zone, written so that all programs read the same.
pub fn ip(value: &str) -> Option<AddressMistake> {
    use AddressMistake::{Form, Unreadable};
    match lenient(value) {
        None => Some(Unreadable("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")),
        Some((_, true)) => Some(Form("must not have leading 0s")),
        Some((ip, false)) if is_mapped(ip) => Some(Form("must not be an IPv4-mapped IPv6 address")),
        Some(_) => None,
    }
}

/// An address block in CIDR notation, written so that all programs read the same; no bits beyond the prefix.
pub fn cidr(value: &str) -> Option<AddressMistake> {
    use AddressMistake::{Form, Unreadable};
    let parts = value.split_once('/').and_then(|(address, prefix)| {
        let (ip, zeros) = lenient(address)?;
        let max = if ip.is_ipv4() { 32 } else { 128 };
        let bits: u8 = prefix.parse().ok().filter(|bits| *bits <= max)?;
        let plain = prefix.bytes().all(|b| b.is_ascii_digit());
        plain.then_some((ip, bits, zeros || prefix != bits.to_string()))
    });
    match parts {
        None => Some(Unreadable("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")),
        Some((_, _, true)) => Some(Form("must not have leading 0s in IP or prefix length")),
        Some((ip, _, false)) if is_mapped(ip) => Some(Form("must not have an IPv4-mapped IPv6 address")),
        Some((ip, bits, false)) if has_bits_beyond(ip, bits) => {
            Some(Form("must not have bits set beyond the prefix length"))
        }
        Some(_) => None,
    }
}

/// What is to be said of an IPv6 address that is valid and not in the one form that RFC 5952 recommends.
pub fn ip_warning(value: &str) -> Option<String> {
    let ip: Ipv6Addr = value.parse().ok()?;
    warning("address", value, ip.to_string())
}

/// Likewise of an address block.
pub fn cidr_warning(value: &str) -> Option<String> {
    let (address, prefix) = value.split_once('/')?;
    let ip: Ipv6Addr = address.parse().ok()?;
    warning("CIDR value", value, format!("{ip}/{prefix}"))
}

fn warning(what: &str, value: &str, canonical: String) -> Option<String> {
    let text = || format!("IPv6 {what} {value:?} should be in RFC 5952 canonical format ({canonical:?})");
    (value != canonical).then(text)
}

fn has_bits_beyond(ip: IpAddr, bits: u8) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().checked_shl(bits.into()).is_some_and(|rest| rest != 0),
        IpAddr::V6(ip) => ip.to_bits().checked_shl(bits.into()).is_some_and(|rest| rest != 0),
    }
}

/// Whether an address is one machine's and means the same machine everywhere in the cluster: neither the reader's own
/// (loopback, unspecified), nor its link's alone, nor many machines'. IPv4 in the clothes of IPv6 is judged as IPv4.
pub fn is_machine_address(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let of_the_link = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || of_the_link)
}

pub fn port_number(value: i64) -> Vec<String> {
    in_range(value, 1, 65535)
}

/// Both ends included.
pub fn in_range(value: i64, min: i64, max: i64) -> Vec<String> {
    if (min..=max).contains(&value) { Vec::new() } else { vec![range_message(min, max)] }
}

/// A Unix user id: any unsigned 32-bit number.
pub fn user_id(value: i64) -> Vec<String> {
    in_range(value, 0, i64::from(u32::MAX))
}

pub fn group_id(value: i64) -> Vec<String> {
    user_id(value)
}

/// `25%`
pub fn percent(value: &str) -> Vec<String> {
    let valid =
        value.strip_suffix('%').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    if valid {
        return Vec::new();
    }
    vec![regex_message(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

fn matches(value: &str, first: fn(u8) -> bool, rest: fn(u8) -> bool) -> bool {
    value.bytes().next().is_some_and(first) && value.bytes().skip(1).all(rest)
}

pub fn c_identifier(value: &str) -> Vec<String> {
    let first = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    if matches(value, first, |b| b.is_ascii_alphanumeric() || b == b'_') {
        return Vec::new();
    }
    vec![regex_message(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric \
         characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

/// The rule that keys of a ConfigMap or Secret must meet to become variables through `envFrom`.
pub fn env_var_name(value: &str) -> Vec<String> {
    let first = |b: u8| b.is_ascii_alphabetic() || b"-._".contains(&b);
    let mut errors = Vec::new();
    if !matches(value, first, |b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
        errors.push(regex_message(
            "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', \
             and must not start with a digit",
            "[-._a-zA-Z][-._a-zA-Z0-9]*",
            &["my.env-name", "MY_ENV.NAME", "MyEnvName1"],
        ));
    }
    errors.extend(parent_directory(value));
    errors
}

/// The rule for `env[*].name` since RelaxedEnvironmentVariableValidation (KEP-4369): printable ASCII without `=`.
pub fn relaxed_env_var_name(value: &str) -> Vec<String> {
    if value.is_empty() {
        return vec![format!("environment variable name {EMPTY_MESSAGE}")];
    }
    if value.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
        return Vec::new();
    }
    vec![
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
            .to_owned(),
    ]
}

pub fn http_header_name(value: &str) -> Vec<String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    if matches(value, allowed, allowed) {
        return Vec::new();
    }
    vec![regex_message(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

/// `example.com/some/path`
pub fn domain_prefixed_path(value: &str) -> Vec<String> {
    domain_prefixed_path_parts(value).into_iter().map(|(_, why)| why).collect()
}

/// As [`domain_prefixed_path`], each mistake with the part of the value that it is about.
pub fn domain_prefixed_path_parts(value: &str) -> Vec<(&str, String)> {
    let (host, path) = match value.split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => (host, path),
        _ => return vec![(value, "must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned())],
    };
    let mut errors: Vec<_> = dns1123_subdomain(host).into_iter().map(|why| (host, why)).collect();
    if !path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
        errors.push((path, regex_message("Invalid path", r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", &[])));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_and_refused() {
        type Check = fn(&str) -> Vec<String>;
        fn told(mistake: Option<AddressMistake>) -> Vec<String> {
            mistake.map(|mistake| mistake.detail().to_owned()).into_iter().collect()
        }
        let cases: &[(Check, &[&str], &[&str])] = &[
            (
                |value| told(ip(value)),
                &["10.9.8.7", "::1"],
                &["", "1.2.3", "01.2.3.4", "1.2.3.4/8", "fe80::1%eth0"],
            ),
            (
                |value| told(cidr(value)),
                &["10.0.0.0/8", "0.0.0.0/0", "::/128"],
                &[
                    "10.0.0.0",
                    "10.0.0.0/33",
                    "10.0.0.0/08",
                    "10.0.0.0/+8",
                    "10.1.2.3/0",
                    "::1/64",
                    "::/129",
                    "/8",
                ],
            ),
            (percent, &["0%", "100%"], &["%", "1", "-1%", "1.5%"]),
            (c_identifier, &["a", "_1"], &["", "1a", "a-b"]),
            (env_var_name, &["A.b-c", "_"], &["", "1A", "a b", "..", "..a"]),
            (relaxed_env_var_name, &["1 a", "-"], &["", "a=b", "é", "\n"]),
            (http_header_name, &["X-A"], &["", "a b", "a_b"]),
            (domain_prefixed_path, &["a.b/c"], &["a", "/a", "a/", "A/b", "a/b c"]),
        ];
        for (check, good, bad) in cases {
            good.iter().for_each(|v| assert_eq!(check(v), Vec::<String>::new(), "{v:?}"));
            bad.iter().for_each(|v| assert!(!check(v).is_empty(), "{v:?} was accepted"));
        }
        for (form, unreadable) in [("1.2.3.04", "1.2.3"), ("::ffff:1.2.3.4", ":::")] {
            assert!(matches!(ip(form), Some(AddressMistake::Form(_))), "{form}");
            assert!(matches!(ip(unreadable), Some(AddressMistake::Unreadable(_))), "{unreadable}");
        }
        for (form, unreadable) in [("10.1.2.3/8", "10.0.0.0/33"), ("10.0.0.0/08", "10.0.0.0")] {
            assert!(matches!(cidr(form), Some(AddressMistake::Form(_))), "{form}");
            assert!(matches!(cidr(unreadable), Some(AddressMistake::Unreadable(_))), "{unreadable}");
        }
        assert_eq!(ip_warning("2001:db8::1").or(ip_warning("10.0.0.1")), None);
        assert_eq!(
            ip_warning("2001:DB8:0::1").as_deref(),
            Some(r#"IPv6 address "2001:DB8:0::1" should be in RFC 5952 canonical format ("2001:db8::1")"#)
        );
        assert_eq!(cidr_warning("2001:db8::/64").or(cidr_warning("10.0.0.0/8")), None);
        assert_eq!(
            cidr_warning("2001:db8:0::/64").as_deref(),
            Some(
                r#"IPv6 CIDR value "2001:db8:0::/64" should be in RFC 5952 canonical format ("2001:db8::/64")"#
            )
        );
        assert_eq!(port_number(0), ["must be between 1 and 65535, inclusive"]);
        assert!(port_number(65535).is_empty());
        assert!(user_id(4_294_967_296).len() == 1 && group_id(0).is_empty());
    }
}
