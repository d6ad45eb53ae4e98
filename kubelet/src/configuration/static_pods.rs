//! Where static pods come from.

use super::documents::Written;
use super::reader::Reader;
use coracle_api::duration::written;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticPods {
    /// A directory of manifests, or one; `None`: `<data_dir>/static-pods`.
    pub path: Option<PathBuf>,
    /// A manifest, a PodList or several documents on a web server.
    pub url: Option<String>,
    /// Headers with which it is asked for.
    pub headers: BTreeMap<String, Vec<String>>,
    /// Between looks at the directory, beside what the kernel tells at once; upstream's 20 s.
    pub file_check: Duration,
    /// Between looks at the web server; upstream's 20 s.
    pub http_check: Duration,
}

impl Default for StaticPods {
    fn default() -> Self {
        let check = Duration::from_secs(20);
        Self { path: None, url: None, headers: BTreeMap::new(), file_check: check, http_check: check }
    }
}

impl StaticPods {
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let all = Self::default();
        let url = |text: &str| {
            let uri: http::Uri = text.parse().ok()?;
            (matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some())
                .then(|| text.to_owned())
        };
        let headers: BTreeMap<String, Vec<String>> = reader.get("staticPodURLHeader").unwrap_or_default();
        for (name, values) in &headers {
            let good = http::HeaderName::try_from(name).is_ok()
                && values.iter().all(|value| http::HeaderValue::try_from(value).is_ok());
            if !good {
                reader.mistake(
                    "staticPodURLHeader",
                    format!("{name:?} is no header, or has a value that none can have"),
                );
            }
        }
        Self {
            path: reader.text("staticPodPath").map(PathBuf::from),
            url: reader.parsed("staticPodURL", url, "no URL such as http://192.0.2.1/pods.yaml"),
            headers,
            file_check: reader.duration("fileCheckFrequency").unwrap_or(all.file_check),
            http_check: reader.duration("httpCheckFrequency").unwrap_or(all.http_check),
        }
    }

    /// All but the directory, whose default is not its own. Values of headers may be secrets.
    pub fn show(&self, all: &mut Written) {
        all.insert("fileCheckFrequency".to_owned(), json!(written(self.file_check)));
        all.insert("httpCheckFrequency".to_owned(), json!(written(self.http_check)));
        if let Some(url) = &self.url {
            all.insert("staticPodURL".to_owned(), json!(url));
        }
        if !self.headers.is_empty() {
            let masked: BTreeMap<_, _> =
                self.headers.iter().map(|(name, values)| (name, vec!["<masked>"; values.len()])).collect();
            all.insert("staticPodURLHeader".to_owned(), json!(masked));
        }
    }
}
