//! Names of images, as the Open Container Initiative's tools read them
//! (<https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests>).

/// Bytes of a name without tag and digest, and of a tag; the specification's.
const NAME_MAX_BYTES: usize = 255;
const TAG_MAX_BYTES: usize = 128;
/// Shortest digest, in hexadecimal digits.
const DIGEST_MIN_DIGITS: usize = 32;

/// Tag and digest of an image; `None` if its name cannot be read. The tag is `latest` where neither is said.
pub fn tag_and_digest(image: &str) -> Option<(&str, Option<&str>)> {
    let (named, digest) = match image.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (image, None),
    };
    let end = named.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match named[end..].split_once(':') {
        Some((last, tag)) => (&named[..end + last.len()], Some(tag)),
        None => (named, None),
    };
    let fine = is_name(name) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest);
    let default = if digest.is_some() { "" } else { "latest" };
    fine.then_some((tag.unwrap_or(default), digest))
}

/// A path of lower case, behind the host of a registry or not. A bare identifier is none.
fn is_name(name: &str) -> bool {
    let identifier = name.len() == 64 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let path = match name.split_once('/') {
        Some((host, path)) if is_host_like(host) => is_host(host).then_some(path),
        _ => Some(name),
    };
    !identifier && name.len() <= NAME_MAX_BYTES && path.is_some_and(|path| path.split('/').all(is_component))
}

fn is_host_like(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_host(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (known, port) = match address {
        Some((address, rest)) => (address.parse::<std::net::Ipv6Addr>().is_ok(), rest.strip_prefix(':')),
        None => match host.split_once(':') {
            Some((name, port)) => (name.split('.').all(is_label), Some(port)),
            None => (host.split('.').all(is_label), None),
        },
    };
    known && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

fn is_label(label: &str) -> bool {
    let inner = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    inner && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
}

/// Words of lower case letters and digits with one dot, one or two underscores, or dashes between them.
fn is_component(component: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = component.as_bytes();
    let ends = bytes.first().is_some_and(|b| is_word(*b)) && bytes.last().is_some_and(|b| is_word(*b));
    let separators = component.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    ends && separators
        .into_iter()
        .all(|between| matches!(between, "" | "." | "_" | "__") || between.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= TAG_MAX_BYTES
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|b| is_word(b) || matches!(b, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, digits)| {
        let word = |part: &str| {
            part.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
                && part.bytes().all(|b| b.is_ascii_alphanumeric())
        };
        algorithm.split(['+', '.', '_', '-']).all(word)
            && digits.len() >= DIGEST_MIN_DIGITS
            && digits.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tags_and_digests() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let (both, plain) = (format!("a/b:1@{digest}"), format!("nginx@{digest}"));
        for (image, expected) in [
            ("nginx", Some(("latest", None))),
            ("nginx:1.2", Some(("1.2", None))),
            ("host:5000/nginx", Some(("latest", None))),
            ("[::1]:5000/a__b/c-d.e", Some(("latest", None))),
            ("Host/nginx:V1", Some(("V1", None))),
            (both.as_str(), Some(("1", Some(digest.as_str())))),
            (plain.as_str(), Some(("", Some(digest.as_str())))),
            ("", None),
            ("ko://github.com/a/b", None),
            ("Nginx", None),
            ("a//b", None),
            ("nginx:", None),
            ("nginx ", None),
            ("a..b", None),
            ("nginx@sha256:00", None),
            ("-host.x/nginx", None),
        ] {
            assert_eq!(tag_and_digest(image), expected, "{image:?}");
        }
        assert_eq!(tag_and_digest(&"a".repeat(64)), None, "an identifier");
    }
}
