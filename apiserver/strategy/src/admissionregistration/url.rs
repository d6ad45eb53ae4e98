//! URLs of webhooks, read as leniently as upstream's library reads them.

use super::*;
use coracle_api::go::quoted;

const FORM: &str = "desired format: https://host[/path]";

/// An `https` URL with a host, and without what only a browser would use.
pub fn check(text: &str, path: &Path, errors: &mut Errors) {
    let url = match Parts::of(text) {
        Ok(url) => url,
        Err(why) => {
            let text = quoted(text.split('#').next().unwrap_or_default());
            errors.required(path, &format!("url must be a valid URL: parse {text}: {why}; {FORM}"));
            return;
        }
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
    /// As Go's library reads it, with its words for why it does not. <https://pkg.go.dev/net/url#Parse>
    fn of(text: &'a str) -> Result<Self, String> {
        let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
        if text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let (scheme, rest) = scheme(rest)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let Some(rest) = rest.strip_prefix("//") else {
            let opaque = !scheme.is_empty() && !rest.starts_with('/');
            if !opaque && rest.split('/').next().is_some_and(|first| first.contains(':')) {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
            escapes(if opaque { "" } else { rest })?;
            return Ok(Self { scheme, query, fragment, ..Self::default() });
        };
        let (authority, beyond) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        check_host(host)?;
        if user.is_some_and(|user| {
            !user.chars().all(|c| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c))
        }) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        escapes(user.unwrap_or_default())?;
        escapes(beyond)?;
        Ok(Self { scheme, user, host, query, fragment })
    }
}

/// The scheme in lower case, empty where there is none, and what is behind it.
fn scheme(text: &str) -> Result<(String, &str), String> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')));
    match end.map(|end| (&text[..end], &text[end..])) {
        Some(("", rest)) if rest.starts_with(':') => Err("missing protocol scheme".to_owned()),
        Some((name, rest))
            if rest.starts_with(':') && name.starts_with(|c: char| c.is_ascii_alphabetic()) =>
        {
            Ok((name.to_lowercase(), &rest[1..]))
        }
        _ => Ok((String::new(), text)),
    }
}

fn check_host(host: &str) -> Result<(), String> {
    let port = match (host.starts_with('['), host.rfind(']'), host.rfind(':')) {
        (true, None, _) => return Err("missing ']' in host".to_owned()),
        (true, Some(end), _) => &host[end + 1..],
        (false, _, Some(colon)) => &host[colon..],
        (false, _, None) => "",
    };
    let number = port.strip_prefix(':').unwrap_or("");
    if !(port.is_empty() || port.starts_with(':') && number.bytes().all(|b| b.is_ascii_digit())) {
        return Err(format!("invalid port {} after host", quoted(port)));
    }
    escapes(host)?;
    let odd =
        |c: &char| c.is_ascii() && !c.is_ascii_alphanumeric() && !"-_.~!$&'()*+,;=:[]<>\"%".contains(*c);
    match host.chars().find(odd) {
        Some(odd) => Err(format!("invalid character {} in host name", quoted(&odd.to_string()))),
        None => Ok(()),
    }
}

/// Each percent sign needs two hexadecimal digits.
fn escapes(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    let bad =
        |at: &usize| !bytes.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
    let Some((at, _)) = text.match_indices('%').find(|(at, _)| bad(at)) else { return Ok(()) };
    let shown: String = text[at..].chars().take(3).collect();
    Err(format!("invalid URL escape {}", quoted(&shown)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_url() {
        const SCHEME: &str = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
        const HOST: &str = "host must be specified; desired format: https://host[/path]";
        let invalid = |why: &str| {
            format!("u: Required value: url must be a valid URL: {why}; desired format: https://host[/path]")
        };
        for (text, expected) in [
            ("https://a.b:443/c", vec![]),
            ("https://test.com:15017/validate ", vec![]),
            ("HTTPS://[::1]:80", vec![]),
            (
                "",
                vec![format!("u: Invalid value: \"\": {SCHEME}"), format!("u: Invalid value: \"\": {HOST}")],
            ),
            (
                "../x",
                vec![format!("u: Invalid value: \"\": {SCHEME}"), format!("u: Invalid value: \"\": {HOST}")],
            ),
            ("http://a", vec![format!("u: Invalid value: \"http\": {SCHEME}")]),
            (
                "https://me@a?q=1#f",
                vec![
                    "u: Invalid value: \"me\": user information is not permitted in the URL".to_owned(),
                    "u: Invalid value: \"f\": fragments are not permitted in the URL".to_owned(),
                    "u: Invalid value: \"q=1\": query parameters are not permitted in the URL".to_owned(),
                ],
            ),
            ("https://a b", vec![invalid(r#"parse "https://a b": invalid character " " in host name"#)]),
            ("::1", vec![invalid(r#"parse "::1": missing protocol scheme"#)]),
            ("%zz#f", vec![invalid(r#"parse "%zz": invalid URL escape "%zz""#)]),
            (
                "a/b",
                vec![format!("u: Invalid value: \"\": {SCHEME}"), format!("u: Invalid value: \"\": {HOST}")],
            ),
            ("1a:b", vec![invalid(r#"parse "1a:b": first path segment in URL cannot contain colon"#)]),
            ("https://a:b/", vec![invalid(r#"parse "https://a:b/": invalid port ":b" after host"#)]),
            ("https://[::1/x", vec![invalid(r#"parse "https://[::1/x": missing ']' in host"#)]),
            ("https://a b@c", vec![invalid(r#"parse "https://a b@c": net/url: invalid userinfo"#)]),
        ] {
            let mut found = Vec::new();
            check(text, &Path::root("u"), &mut Errors(&mut found));
            assert_eq!(crate::testing::texts(&found), expected, "{text:?}");
        }
    }
}
