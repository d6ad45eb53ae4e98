//! `format` of strings. Names that are not known here promise nothing and are not checked.

use jiff::civil::Date;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether the text has the form that its format names.
pub fn holds(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.len() == 10 && text.parse::<Date>().is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "byte" => base64(text),
        "uuid" | "uuid3" | "uuid4" | "uuid5" => uuid(text, format),
        "hostname" | "k8s-long-name" => {
            crate::validation::dns1123_subdomain(&text.to_ascii_lowercase()).is_empty()
        }
        "k8s-short-name" => crate::validation::dns1123_label(text).is_empty(),
        "mac" => mac(text),
        "uri" => text.contains("://") || text.starts_with('/'),
        "email" => text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty()),
        "duration" => duration(text),
        "bsonobjectid" => text.len() == 24 && hex(text),
        "hexcolor" => {
            text.strip_prefix('#').is_some_and(|digits| matches!(digits.len(), 3 | 6) && hex(digits))
        }
        _ => true,
    }
}

fn hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let (Ok(address), Ok(length)) = (address.parse::<IpAddr>(), length.parse::<u8>()) else { return false };
    length <= if address.is_ipv4() { 32 } else { 128 }
}

fn base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

fn uuid(text: &str, format: &str) -> bool {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let dashes: Vec<usize> = text.match_indices('-').map(|(at, _)| at).collect();
    let version = format.strip_prefix("uuid").unwrap_or_default();
    digits.len() == 32
        && hex(&digits)
        && (dashes.is_empty() || dashes == [8, 13, 18, 23])
        && (version.is_empty() || &digits[12..13] == version)
}

fn mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    parts.len() == 6 && parts.iter().all(|part| part.len() == 2 && hex(part))
}

/// Go's form, `1h30m`, or words such as `2 days`.
fn duration(text: &str) -> bool {
    let text = text.trim().trim_start_matches(['-', '+']);
    if text == "0" {
        return true;
    }
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let after = rest[digits..].trim_start();
        let letters = after.len() - after.trim_start_matches(|c: char| c.is_alphabetic()).len();
        const UNITS: [&str; 24] = [
            "ns", "us", "µs", "ms", "s", "m", "h", "d", "w", "nanos", "micros", "millis", "sec", "secs",
            "second", "seconds", "min", "minute", "minutes", "hour", "hours", "day", "days", "week",
        ];
        if digits == 0 || !UNITS.contains(&&after[..letters]) {
            return false;
        }
        rest = after[letters..].trim_start();
    }
    !text.is_empty()
}
