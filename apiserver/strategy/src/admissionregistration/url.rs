//! URLs of webhooks, read as leniently as upstream's library reads them.

use super::*;

const FORM: &str = "desired format: https://host[/path]";

/// An `https` URL with a host, and without what only a browser would use.
pub fn check(text: &str, path: &Path, errors: &mut Errors) {
    let Some(url) = Parts::of(text) else {
        errors.required(path, &format!("url must be a valid URL: {text}; {FORM}"));
        return;
    };
    if url.scheme != "https" {
        errors.invalid(path, url.scheme.as_str(), &format!("'https' is the only allowed URL scheme; {FORM}"));
    }
    if url.host.is_empty() {
        errors.invalid(path, "", &format!("host must be specified; {FORM}"));
    }
    if let Some(user) = url.user {
        errors.invalid(path, user, "user information is not permitted in the URL");
    }
    if !url.fragment.is_empty() {
        errors.invalid(path, url.fragment, "fragments are not permitted in the URL");
    }
    if !url.query.is_empty() {
        errors.invalid(path, url.query, "query parameters are not permitted in the URL");
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Parts<'a> {
    scheme: String,
    user: Option<&'a str>,
    host: &'a str,
    query: &'a str,
    fragment: &'a str,
}

impl<'a> Parts<'a> {
    /// `None` where even upstream's reader gives up: control characters, a colon before anything that could be a
    /// scheme, a host with blanks or a port that is no number.
    fn of(text: &'a str) -> Option<Self> {
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return None;
        }
        let (scheme, rest) = scheme(rest)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let Some(rest) = rest.strip_prefix("//") else {
            let first = rest.split('/').next().unwrap_or_default();
            let lost = scheme.is_empty() && first.contains(':');
            return (!lost).then_some(Self { scheme, query, fragment, ..Self::default() });
        };
        let authority = rest.split('/').next().unwrap_or_default();
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        is_host(host).then_some(Self { scheme, user, host, query, fragment })
    }
}

/// The scheme in lower case, empty where there is none, and what is behind it.
fn scheme(text: &str) -> Option<(String, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')));
    match end.map(|end| (&text[..end], &text[end..])) {
        Some(("", rest)) if rest.starts_with(':') => None,
        Some((name, rest))
            if rest.starts_with(':') && name.starts_with(|c: char| c.is_ascii_alphabetic()) =>
        {
            Some((name.to_lowercase(), &rest[1..]))
        }
        _ => Some((String::new(), text)),
    }
}

fn is_host(host: &str) -> bool {
    let port = match host.rsplit_once(']') {
        Some((_, rest)) => rest.strip_prefix(':').unwrap_or(rest),
        None => host.split_once(':').map_or("", |(_, port)| port),
    };
    !host.contains([' ', '<', '>', '"', '\\', '^', '`', '{', '}', '|'])
        && port.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_url() {
        const SCHEME: &str = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
        const HOST: &str = "host must be specified; desired format: https://host[/path]";
        for (text, expected) in [
            ("https://a.b:443/c", vec![]),
            ("https://test.com:15017/validate ", vec![]),
            ("HTTPS://[::1]:80", vec![]),
            ("", vec![format!("u: Invalid value: \"\": {SCHEME}"), format!("u: Invalid value: \"\": {HOST}")]),
            ("../x", vec![format!("u: Invalid value: \"\": {SCHEME}"), format!("u: Invalid value: \"\": {HOST}")]),
            ("http://a", vec![format!("u: Invalid value: \"http\": {SCHEME}")]),
            (
                "https://me@a?q=1#f",
                vec![
                    "u: Invalid value: \"me\": user information is not permitted in the URL".to_owned(),
                    "u: Invalid value: \"f\": fragments are not permitted in the URL".to_owned(),
                    "u: Invalid value: \"q=1\": query parameters are not permitted in the URL".to_owned(),
                ],
            ),
            (
                "https://a b",
                vec!["u: Required value: url must be a valid URL: https://a b; desired format: https://host[/path]".to_owned()],
            ),
            (
                "::1",
                vec!["u: Required value: url must be a valid URL: ::1; desired format: https://host[/path]".to_owned()],
            ),
        ] {
            let mut found = Vec::new();
            check(text, &Path::root("u"), &mut Errors(&mut found));
            assert_eq!(crate::testing::texts(&found), expected, "{text:?}");
        }
    }
}
