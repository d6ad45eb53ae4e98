//! What the headers of a request say, read once: whoever works on the request reads this value and no header.
//!
//! A header that comes several times is read by one rule, which is upstream's: the first one counts, as Go's `Header.Get`
//! has it. [`Credentials`] names the exceptions, where all count or one alone may come. What a proxied request carries
//! goes on header by header (`connect::headers`); those behind read it by the same rule.

use coracle_access::authn::Credentials;
use coracle_component_base::traces;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, IF_NONE_MATCH, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const TRACE_PARENT: HeaderName = HeaderName::from_static(traces::HEADER);

/// See the module. A header that is no text counts as absent, but for those that are only handed on.
#[derive(Debug)]
pub struct RequestHeaders {
    accept: Option<HeaderValue>,
    content_type: Option<HeaderValue>,
    if_none_match: Option<HeaderValue>,
    forwarded_for: Option<HeaderValue>,
    /// Handed on, to the log and to traces.
    pub user_agent: Option<HeaderValue>,
    /// Handed on: the client's name for the request.
    pub audit_id: Option<HeaderValue>,
    /// The trace that the client says it is part of.
    pub trace_parent: Option<HeaderValue>,
    /// Whether the answer may be compressed.
    pub gzip: bool,
    pub credentials: Credentials,
}

impl RequestHeaders {
    pub fn of(headers: &HeaderMap) -> Self {
        let first = |name: HeaderName| headers.get(name).cloned();
        Self {
            accept: first(ACCEPT),
            content_type: first(CONTENT_TYPE),
            if_none_match: first(IF_NONE_MATCH),
            forwarded_for: first(FORWARDED_FOR),
            user_agent: first(USER_AGENT),
            audit_id: first(AUDIT_ID),
            trace_parent: first(TRACE_PARENT),
            gzip: accepts_gzip(text(headers.get(ACCEPT_ENCODING))),
            credentials: Credentials::of(headers),
        }
    }

    /// Empty where there is none, as for the others.
    pub fn accept(&self) -> &str {
        text(self.accept.as_ref())
    }

    pub fn content_type(&self) -> &str {
        text(self.content_type.as_ref())
    }

    pub fn if_none_match(&self) -> &str {
        text(self.if_none_match.as_ref())
    }

    pub fn forwarded_for(&self) -> &str {
        text(self.forwarded_for.as_ref())
    }

    pub fn user_agent(&self) -> &str {
        text(self.user_agent.as_ref())
    }
}

fn text(value: Option<&HeaderValue>) -> &str {
    value.and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn accepts_gzip(value: &str) -> bool {
    value.split(',').any(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim() == "gzip" && parameters.trim() != "q=0"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Headers that are read, each with values of which some are no text, some empty and some wrong.
    const NAMES: [&str; 17] = [
        "accept",
        "accept-encoding",
        "audit-id",
        "authorization",
        "content-type",
        "if-none-match",
        "impersonate-extra-a",
        "impersonate-group",
        "impersonate-uid",
        "impersonate-user",
        "sec-websocket-protocol",
        "traceparent",
        "user-agent",
        "x-forwarded-for",
        "x-remote-extra-a",
        "x-remote-group",
        "x-remote-user",
    ];
    const VALUES: [&[u8]; 12] = [
        b"",
        b"a",
        b"b",
        b"a, b",
        b"Bearer one",
        b"Bearer two",
        b"Basic x",
        b"gzip",
        b"application/json",
        b"application/yaml",
        b"base64url.bearer.authorization.k8s.io.b25l",
        b"\xff",
    ];

    /// As Go's `Header.Get`, over the lines of a request.
    fn get<'a>(lines: &'a [(&str, &[u8])], name: &str) -> Option<&'a [u8]> {
        lines.iter().find(|(one, _)| *one == name).map(|(_, value)| *value)
    }

    fn values<'a>(lines: &'a [(&str, &'a [u8])], name: &str) -> Vec<&'a [u8]> {
        lines.iter().filter(|(one, _)| *one == name).map(|(_, value)| *value).collect()
    }

    fn read(value: Option<&[u8]>) -> &str {
        value.and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default()
    }

    fn line() -> impl Strategy<Value = (&'static str, &'static [u8])> {
        (prop::sample::select(&NAMES[..]), prop::sample::select(&VALUES[..]))
    }

    proptest! {
        /// In whatever order and however often headers come: the first of each counts, all groups do, and a request that
        /// names two users to impersonate is nobody's.
        #[test]
        fn repeated_headers_are_read_as_upstream_reads_them(lines in prop::collection::vec(line(), 0..24)) {
            let mut map = HeaderMap::new();
            for (name, value) in &lines {
                map.append(*name, HeaderValue::from_bytes(value).expect("a value"));
            }
            let found = RequestHeaders::of(&map);
            for (shown, name) in [
                (found.accept(), "accept"),
                (found.content_type(), "content-type"),
                (found.if_none_match(), "if-none-match"),
                (found.forwarded_for(), "x-forwarded-for"),
                (found.user_agent(), "user-agent"),
            ] {
                prop_assert_eq!(shown, read(get(&lines, name)), "{}", name);
            }
            let bytes = |value: &Option<HeaderValue>| value.as_ref().map(|v| v.as_bytes().to_vec());
            prop_assert_eq!(bytes(&found.audit_id), get(&lines, "audit-id").map(<[u8]>::to_vec));
            prop_assert_eq!(bytes(&found.trace_parent), get(&lines, "traceparent").map(<[u8]>::to_vec));
            prop_assert_eq!(found.gzip, read(get(&lines, "accept-encoding")) == "gzip");
            let credentials = &found.credentials;
            let token = match get(&lines, "authorization") {
                Some(b"Bearer one") => Ok(Some("one")),
                Some(b"Bearer two") => Ok(Some("two")),
                Some(b"\xff") => Err(()),
                _ if values(&lines, "sec-websocket-protocol").contains(&VALUES[10]) => Ok(Some("one")),
                _ => Ok(None),
            };
            prop_assert_eq!(credentials.bearer().map_err(drop), token);
            let named = read(get(&lines, "x-remote-user"));
            prop_assert_eq!(credentials.proxied().map_or("", |user| user.name.as_str()), named);
            if let Some(user) = credentials.proxied() {
                let groups: Vec<&str> = values(&lines, "x-remote-group").into_iter()
                    .filter_map(|value| std::str::from_utf8(value).ok()).collect();
                prop_assert_eq!(&user.groups[..groups.len()], &groups[..]);
            }
            let wished = values(&lines, "impersonate-user");
            if let Ok(Some(user)) = credentials.wished_user() {
                prop_assert_eq!(wished.len(), 1);
                prop_assert_eq!(user.as_bytes(), wished[0]);
            }
            if wished.len() > 1 || values(&lines, "impersonate-uid").len() > 1 {
                prop_assert_eq!(credentials.wished_user().map_err(|error| error.code), Err(400));
            }
        }
    }
}
