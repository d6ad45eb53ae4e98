//! Links in a backend's answers, led back through the proxy.

/// What decides whether a link means the backend itself.
pub(super) struct Links {
    /// The path of the client's request up to and including `/proxy`.
    prefix: String,
    /// `10.42.0.7:80`
    backend: String,
    /// What the client calls this server, which the backend was told too.
    host: String,
}

/// The parts of a reference (RFC 3986, section 4.1), without their marks.
#[derive(Default)]
struct Reference<'a> {
    scheme: Option<&'a str>,
    authority: Option<&'a str>,
    path: &'a str,
    /// With its `?` or `#`.
    rest: &'a str,
}

impl<'a> Reference<'a> {
    fn parse(text: &'a str) -> Self {
        let (head, rest) = text.split_at(text.find(['?', '#']).unwrap_or(text.len()));
        let is_scheme = |s: &str| {
            s.starts_with(|c: char| c.is_ascii_alphabetic())
                && s.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
        };
        let (scheme, head) = match head.split_once(':') {
            Some((scheme, after)) if is_scheme(scheme) => (Some(scheme), after),
            _ => (None, head),
        };
        let Some(after) = head.strip_prefix("//") else {
            return Self { scheme, path: head, rest, authority: None };
        };
        let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
        Self { scheme, authority: Some(authority), path, rest }
    }
}

impl Links {
    pub(super) fn new(prefix: &str, backend: String, host: String) -> Self {
        // A colon in a name may come encoded; links are written plainly.
        Self { prefix: prefix.replace("%3A", ":").replace("%3a", ":"), backend, host }
    }

    /// The link as the client must follow it: links to other servers and relative ones stay, links to an absolute path
    /// of the backend get the prefix, unless they have it.
    pub(super) fn rewrite(&self, link: &str) -> String {
        let Reference { scheme, authority, path, rest } = Reference::parse(link);
        let host = authority.unwrap_or_default();
        let elsewhere = !host.is_empty() && host != self.backend && host != self.host;
        if elsewhere || !path.starts_with('/') {
            return link.to_owned();
        }
        let server = match (scheme, host) {
            (Some(scheme), host) if !host.is_empty() && host == self.host => format!("{scheme}://{host}"),
            (None, host) if !host.is_empty() && host == self.host => format!("//{host}"),
            _ => String::new(),
        };
        if path.starts_with(&self.prefix) {
            return format!("{server}{path}{rest}");
        }
        let joined = cleaned(&format!("{}{path}", self.prefix));
        let slash = if path.ends_with('/') && !joined.ends_with('/') { "/" } else { "" };
        format!("{server}{joined}{slash}{rest}")
    }
}

/// Without empty, `.` and `..` segments.
fn cleaned(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_the_backend_lead_through_the_proxy() {
        let links = Links::new(
            "/api/v1/namespaces/n/pods/http%3Ap:80/proxy",
            "10.0.0.1:80".to_owned(),
            "api:6443".to_owned(),
        );
        let at = "/api/v1/namespaces/n/pods/http:p:80/proxy";
        let table = [
            ("/", format!("{at}/")),
            ("/a/b?q=/x#f", format!("{at}/a/b?q=/x#f")),
            ("/a//../b/", format!("{at}/b/")),
            ("http://10.0.0.1:80/a", format!("{at}/a")),
            ("//10.0.0.1:80/a", format!("{at}/a")),
            ("https://api:6443/a", format!("https://api:6443{at}/a")),
            (
                "https://api:6443/api/v1/namespaces/n/pods/http:p:80/proxy/x",
                format!("https://api:6443{at}/x"),
            ),
            ("/api/v1/namespaces/n/pods/http:p:80/proxy/x", format!("{at}/x")),
            ("a/b", "a/b".to_owned()),
            ("?q", "?q".to_owned()),
            ("#top", "#top".to_owned()),
            ("http://example.org/a", "http://example.org/a".to_owned()),
            ("http://10.0.0.1:80", "http://10.0.0.1:80".to_owned()),
            ("mailto:a@b", "mailto:a@b".to_owned()),
            ("javascript:f('/x')", "javascript:f('/x')".to_owned()),
        ];
        for (link, expected) in table {
            assert_eq!(links.rewrite(link), expected, "{link}");
        }
    }
}
