//! Where an answer sends the client of an HTTP probe.

use http::Uri;

/// What is asked, without the headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Without brackets.
    pub host: String,
    pub port: u16,
    pub https: bool,
    /// With the query.
    pub path: String,
}

impl Place {
    pub fn url(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.path)
    }

    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }

    /// Where the header `Location` of an answer from here leads (RFC 9110 section 10.2.2).
    pub fn follow(&self, location: &str) -> Result<Self, String> {
        let location = location.split('#').next().unwrap_or_default();
        let scheme = if self.https { "https:" } else { "http:" };
        if let Some(rest) = location.strip_prefix("//") {
            return Self::absolute(&format!("{scheme}//{rest}"));
        }
        if location.split(['/', '?']).next().is_some_and(|first| first.contains(':')) {
            return Self::absolute(location);
        }
        let (here, _) = self.path.split_once('?').unwrap_or((&self.path, ""));
        let path = match location.chars().next() {
            None => self.path.clone(),
            Some('/') => location.to_owned(),
            Some('?') => format!("{here}{location}"),
            Some(_) => format!("{}/{location}", here.rsplit_once('/').map_or("", |(folder, _)| folder)),
        };
        Ok(Self { path, ..self.clone() })
    }

    fn absolute(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|e| format!("failed to parse Location header {url:?}: {e}"))?;
        let https = match uri.scheme_str().unwrap_or_default() {
            "http" => false,
            "https" => true,
            other => return Err(format!("unsupported protocol scheme {other:?}")),
        };
        Ok(Self {
            host: uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(if https { 443 } else { 80 }),
            https,
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations() {
        let place = |url: &str| Place::absolute(url).unwrap();
        let here = place("http://10.42.0.2:8080/a/b?c=d");
        for (location, leads_to) in [
            ("/x?y", "http://10.42.0.2:8080/x?y"),
            ("x", "http://10.42.0.2:8080/a/x"),
            ("?e=f", "http://10.42.0.2:8080/a/b?e=f"),
            ("", "http://10.42.0.2:8080/a/b?c=d"),
            ("/x#part", "http://10.42.0.2:8080/x"),
            ("//other/x", "http://other:80/x"),
            ("https://[2001:db8::1]/x", "https://[2001:db8::1]:443/x"),
            ("http://10.42.0.2:9090", "http://10.42.0.2:9090/"),
        ] {
            assert_eq!(here.follow(location).unwrap().url(), leads_to, "{location}");
        }
        assert_eq!(here.follow("ftp://h/x").unwrap_err(), "unsupported protocol scheme \"ftp\"");
    }
}
