//! Formats of names and values, with upstream's messages.
//!
//! Each function returns what is wrong with the value; an empty list means it is valid. Limits are those of
//! upstream's `k8s.io/apimachinery/pkg/util/validation`, lengths in bytes.

mod names;
mod values;

pub use names::{
    config_map_key, dns1035_label, dns1123_label, dns1123_subdomain, dns1123_subdomain_with_underscore,
    is_extended_resource, label_value, path_segment_name, path_segment_prefix, port_name, qualified_name,
    wildcard_dns1123_subdomain,
};
pub use values::{
    AddressMistake, c_identifier, cidr, cidr_warning, domain_prefixed_path, domain_prefixed_path_parts,
    env_var_name, group_id, http_header_name, in_range, ip, ip_warning, is_machine_address, percent,
    port_number, relaxed_env_var_name, user_id,
};

/// Longest DNS label (RFC 1123), label value and name part of a qualified name.
pub const LABEL_MAX_BYTES: usize = 63;
/// Longest DNS subdomain (RFC 1123), and so the longest name of most objects.
pub const SUBDOMAIN_MAX_BYTES: usize = 253;

/// Of labels' values and the parts of qualified names.
pub fn max_length_message(bytes: usize) -> String {
    format!("must be no more than {bytes} bytes")
}

/// Of names, where upstream says characters; all that are allowed in them are one byte long.
pub fn max_name_message(bytes: usize) -> String {
    format!("must be no more than {bytes} characters")
}

pub fn range_message(min: i64, max: i64) -> String {
    format!("must be between {min} and {max}, inclusive")
}

pub const EMPTY_MESSAGE: &str = "must be non-empty";

fn regex_message(message: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{message} (regex used for validation is '{regex}')");
    }
    let quoted: Vec<String> = examples.iter().map(|e| format!("'{e}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{regex}')", quoted.join(" or "))
}

/// Whether every byte of `value` is allowed by `inner`, and the first and last by `edge`. False for nothing.
fn shaped(value: &str, edge: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    let bytes = value.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => edge(first) && edge(last) && bytes.iter().all(|&b| inner(b)),
        _ => false,
    }
}

fn lower_alphanumeric(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn lower_alphanumeric_or_dash(b: u8) -> bool {
    lower_alphanumeric(b) || b == b'-'
}
