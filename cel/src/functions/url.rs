//! Kubernetes' URL library, which reads as Go's `url.ParseRequestURI` does: an absolute URI or an absolute path.

use super::{Cost, Function, Outcome, text};
use crate::error::EvalError;
use crate::value::{Library, Url, Value};

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "url",
        signatures: &["url(string): kubernetes.URL"],
        run: |args| {
            let shown = text(&args[0])?;
            let parsed = Url::parse(shown).map(|url| Value::library(Library::Url(url)));
            parsed.ok_or_else(|| {
                EvalError::Message(format!("URL parse error during conversion from string: {shown}"))
            })
        },
        cost: Cost::Traverse,
    },
    Function {
        name: "isURL",
        signatures: &["isURL(string): bool"],
        run: |args| Ok(Value::Bool(Url::parse(text(&args[0])?).is_some())),
        cost: Cost::Flat,
    },
    Function {
        name: "getScheme",
        signatures: &["kubernetes.URL.getScheme(): string"],
        run: |args| of(args, |url| Value::text(url.scheme.as_str())),
        cost: Cost::Flat,
    },
    Function {
        name: "getHost",
        signatures: &["kubernetes.URL.getHost(): string"],
        run: |args| of(args, |url| Value::text(url.host.as_str())),
        cost: Cost::Flat,
    },
    Function {
        name: "getHostname",
        signatures: &["kubernetes.URL.getHostname(): string"],
        run: |args| of(args, |url| Value::text(url.split_host().0)),
        cost: Cost::Flat,
    },
    Function {
        name: "getPort",
        signatures: &["kubernetes.URL.getPort(): string"],
        run: |args| of(args, |url| Value::text(url.split_host().1)),
        cost: Cost::Flat,
    },
    Function {
        name: "getEscapedPath",
        signatures: &["kubernetes.URL.getEscapedPath(): string"],
        run: |args| of(args, |url| Value::text(url.path.as_str())),
        cost: Cost::Flat,
    },
    Function {
        name: "getQuery",
        signatures: &["kubernetes.URL.getQuery(): map<string,list<string>>"],
        run: |args| of(args, query),
        cost: Cost::Flat,
    },
];

fn of<'a>(args: &[Value<'a>], part: impl Fn(&Url) -> Value<'a>) -> Outcome<'a> {
    match &args[0] {
        Value::Library(library) => match library.as_ref() {
            Library::Url(url) => Ok(part(url)),
            _ => Err(EvalError::NoOverload),
        },
        _ => Err(EvalError::NoOverload),
    }
}

fn query<'a>(url: &Url) -> Value<'a> {
    let mut entries: Vec<(Value<'a>, Vec<Value<'a>>)> = Vec::new();
    for (name, value) in &url.query {
        let value = Value::text(value.as_str());
        match entries.iter_mut().find(|(known, _)| known.as_str() == Some(name)) {
            Some((_, values)) => values.push(value),
            None => entries.push((Value::text(name.as_str()), vec![value])),
        }
    }
    Value::map(entries.into_iter().map(|(name, values)| (name, Value::list(values))).collect())
}

impl Url {
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.contains(|c: char| c.is_ascii_control() || c == ' ') {
            return None;
        }
        // As in a request: no fragment is split off.
        let (before, query) = text.split_once('?').map_or((text, ""), |(before, query)| (before, query));
        let query = pairs(query);
        if before.starts_with('/') && !before.starts_with("//") {
            return Some(Self { path: escaped(before)?, query, ..Self::default() });
        }
        let (scheme, rest) = before.split_once(':')?;
        let mut letters = scheme.chars();
        let good = letters.next().is_some_and(|c| c.is_ascii_alphabetic())
            && letters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
        if !good {
            return None;
        }
        let Some(rest) = rest.strip_prefix("//") else {
            // Opaque, as `mailto:` is; a request knows only absolute paths.
            let path = if rest.starts_with('/') { escaped(rest)? } else { String::new() };
            return Some(Self { scheme: scheme.to_ascii_lowercase(), path, query, host: String::new() });
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let url =
            Self { scheme: scheme.to_ascii_lowercase(), host: host.to_owned(), path: escaped(path)?, query };
        let (name, port) = url.split_host();
        let brackets = host.starts_with('[') == host.contains(']');
        let good = !name.contains(['<', '>', '"', '^', '`', '{', '|', '}', '\\']) && brackets;
        (good && port.chars().all(|c| c.is_ascii_digit())).then_some(url)
    }

    /// Name and port, without the brackets of an IPv6 address.
    fn split_host(&self) -> (&str, &str) {
        let after = self.host.rfind(']').map_or(0, |at| at + 1);
        let (name, port) = match self.host[after..].rfind(':') {
            Some(at) => (&self.host[..after + at], &self.host[after + at + 1..]),
            None => (self.host.as_str(), ""),
        };
        (name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name), port)
    }
}

/// The path as written, if its escapes are whole.
fn escaped(path: &str) -> Option<String> {
    let bytes = path.as_bytes();
    let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let whole = bytes.iter().enumerate().all(|(at, byte)| *byte != b'%' || hex(at + 1) && hex(at + 2));
    whole.then(|| path.to_owned())
}

fn pairs(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        let mut out = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((first, after)) = rest.split_first() {
            let code =
                after.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
            match (first, code) {
                (b'%', Some(code)) => {
                    out.push(code);
                    rest = &after[2..];
                }
                _ => {
                    out.push(*first);
                    rest = after;
                }
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    };
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .map(|(k, v)| (decode(k), decode(v)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_fall_into_their_parts() {
        let url = Url::parse("https://user@[::1]:80/a%20b?x=1&x=2&y=a%20b").unwrap();
        assert_eq!(
            (url.scheme.as_str(), url.split_host(), url.path.as_str()),
            ("https", ("::1", "80"), "/a%20b")
        );
        assert_eq!(url.query.len(), 3);
        assert!(Url::parse("/path").is_some() && Url::parse("http://a").is_some());
        for wrong in ["", "no url", "../relative", "http://a:b/", ":foo", "/a%2"] {
            assert_eq!(Url::parse(wrong), None, "{wrong}");
        }
    }
}
