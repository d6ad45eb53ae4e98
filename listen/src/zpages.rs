//! `/statusz` and `/flagz`: what a component is and how it was started, for people and, by their media types, for programs
//! (<https://kubernetes.io/docs/reference/instrumentation/zpages/>).

use crate::accept::{Clause, clauses};
use http::header::{CONTENT_TYPE, WARNING};
use http::{HeaderValue, Response, StatusCode};
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

pub const STATUSZ: &str = "/statusz";
pub const FLAGZ: &str = "/flagz";

const TEXT: &str = "text/plain; charset=utf-8";
const GROUP: &str = "config.k8s.io";
/// Served versions of the structured form; the second is deprecated.
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];

/// What the pages of all components of a process tell of it.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Settings that were given, by the names of their flags.
    pub flags: BTreeMap<String, String>,
    pub started: Timestamp,
    /// Of Kubernetes, with its `v`.
    pub version: &'static str,
    /// No Go takes part: what `/version` says in its place.
    pub go_version: &'static str,
}

/// A component of the program that has the pages.
#[derive(Clone, Copy, Debug)]
pub struct Zpages<'a> {
    /// As upstream calls it: `kubelet`, `kube-scheduler`.
    pub component: &'a str,
    pub program: &'a Program,
    /// What else its port serves, sorted.
    pub paths: &'a [&'a str],
}

/// An answer.
#[derive(Debug)]
pub struct Page {
    pub media: &'static str,
    pub body: String,
    pub warning: Option<String>,
}

impl Page {
    /// The value of the header `Warning`.
    pub fn warning_header(&self) -> Option<String> {
        self.warning.as_ref().map(|text| format!("299 - \"{text}\""))
    }
}

/// None of the media types that were asked for is served; says which are.
#[derive(Debug, thiserror::Error)]
#[error("only the following media types are accepted: text/plain, {0}")]
pub struct NotAcceptable(String);

impl Zpages<'_> {
    /// The page at a path; `None` for any other one.
    ///
    /// # Errors
    /// The header `Accept` names no form that it has.
    pub fn page(&self, path: &str, accept: &str, now: Timestamp) -> Option<Result<Page, NotAcceptable>> {
        match path {
            STATUSZ => Some(self.statusz(accept, now)),
            FLAGZ => Some(self.flagz(accept)),
            _ => None,
        }
    }

    /// The same as a response: 404 for any other path, 406 for what is not served, a header for a warning.
    pub fn response(&self, path: &str, accept: &str) -> Response<String> {
        let told = |status: StatusCode, media: &'static str, body: String| {
            let mut response = Response::new(body);
            *response.status_mut() = status;
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
            response
        };
        match self.page(path, accept, Timestamp::now()) {
            Some(Ok(page)) => {
                let warning = page.warning_header().and_then(|text| HeaderValue::try_from(text).ok());
                let mut response = told(StatusCode::OK, page.media, page.body);
                response.headers_mut().extend(warning.map(|warning| (WARNING, warning)));
                response
            }
            Some(Err(error)) => told(StatusCode::NOT_ACCEPTABLE, TEXT, format!("{error}\n")),
            None => told(StatusCode::NOT_FOUND, TEXT, "404 page not found\n".to_owned()),
        }
    }

    fn statusz(&self, accept: &str, now: Timestamp) -> Result<Page, NotAcceptable> {
        let Program { started, go_version, version, .. } = self.program;
        let binary_version = version.trim_start_matches('v');
        let status = Status {
            start_time: started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            uptime_seconds: now.duration_since(*started).as_secs().max(0),
            go_version,
            binary_version,
            emulation_version: binary_version.rsplit_once('.').map_or(binary_version, |(release, _)| release),
            paths: self.paths,
        };
        self.answer(accept, "Statusz", &status, |mut text| {
            let seconds = status.uptime_seconds;
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "Started: {}\nUp: {} hr {:02} min {:02} sec\nGo version: {go_version}\nBinary version: {binary_version}\n\
                 Emulation version: {}\nPaths: {}",
                started.strftime("%a %b %e %H:%M:%S UTC %Y"),
                seconds / 3600,
                seconds / 60 % 60,
                seconds % 60,
                status.emulation_version,
                self.paths.join(" "),
            );
            text
        })
    }

    fn flagz(&self, accept: &str) -> Result<Page, NotAcceptable> {
        let flags = &self.program.flags;
        self.answer(accept, "Flagz", &Flags { flags }, |text| {
            flags.iter().fold(text, |mut text, (name, value)| {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{name}={value}");
                text
            })
        })
    }

    fn answer(
        &self,
        accept: &str,
        kind: &str,
        fields: &impl Serialize,
        text: impl FnOnce(String) -> String,
    ) -> Result<Page, NotAcceptable> {
        let page = kind.to_lowercase();
        let Form::Structured(version) = form(accept, kind)? else {
            return Ok(Page { media: TEXT, body: text(self.heading(&page)), warning: None });
        };
        let api_version = format!("{GROUP}/{version}");
        let object = Object { kind, api_version, metadata: Metadata { name: self.component }, fields };
        // Strings and numbers always are JSON.
        let body = serde_json::to_string(&object).unwrap_or_default();
        let warning = (version != VERSIONS[0])
            .then(|| format!("{GROUP}/{version} {kind} is deprecated, ask /{page} for {}", VERSIONS[0]));
        Ok(Page { media: "application/json", body, warning })
    }

    fn heading(&self, page: &str) -> String {
        format!(
            "\n{} {page}\nWarning: This endpoint is not meant to be machine parseable, has no formatting \
             compatibility guarantees and is for debugging purposes only.\n\n",
            self.component
        )
    }
}

/// The structured form; fields stand in upstream's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a, F> {
    kind: &'a str,
    api_version: String,
    metadata: Metadata<'a>,
    #[serde(flatten)]
    fields: &'a F,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    start_time: String,
    uptime_seconds: i64,
    go_version: &'a str,
    binary_version: &'a str,
    emulation_version: &'a str,
    paths: &'a [&'a str],
}

#[derive(Serialize)]
struct Flags<'a> {
    flags: &'a BTreeMap<String, String>,
}

enum Form {
    Text,
    Structured(&'static str),
}

/// The first form of the header that is served; text where there is none.
fn form(accept: &str, kind: &str) -> Result<Form, NotAcceptable> {
    if accept.trim().is_empty() {
        return Ok(Form::Text);
    }
    let of = |clause: &Clause<'_>| match (clause.kind, clause.subtype) {
        ("*", "*") | ("text", "plain" | "*") => Some(Form::Text),
        ("application", "json") => {
            let asked = |key: &str, value: &str| clause.parameter(key) == value;
            let version = VERSIONS.into_iter().find(|version| asked("v", version))?;
            (asked("g", GROUP) && asked("as", kind)).then_some(Form::Structured(version))
        }
        _ => None,
    };
    clauses(accept).iter().find_map(of).ok_or_else(|| {
        let known = VERSIONS.map(|version| format!("application/json;v={version};g={GROUP};as={kind}"));
        NotAcceptable(known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Program {
        let flags = BTreeMap::from([("v".to_owned(), "4".to_owned())]);
        Program { flags, started: Timestamp::UNIX_EPOCH, version: "v1.36.0", go_version: "none" }
    }

    fn answer(path: &str, accept: &str) -> Result<Page, NotAcceptable> {
        let (program, now) = (program(), Timestamp::from_second(3723).expect("a time"));
        let pages = Zpages { component: "kubelet", program: &program, paths: &["/healthz", STATUSZ] };
        pages.page(path, accept, now).expect("a page")
    }

    #[test]
    fn people_get_text_and_programs_what_they_name() {
        for accept in ["", "*/*", "text/plain", "application/json;v=foo;g=config.k8s.io;as=Flagz, */*"] {
            let page = answer(FLAGZ, accept).expect("a page");
            assert_eq!(page.media, TEXT);
            let body = page.body;
            assert!(body.starts_with("\nkubelet flagz\nWarning: ") && body.ends_with("\n\nv=4\n"), "{body}");
        }
        let page = answer(FLAGZ, "application/json;v=v1beta1;g=config.k8s.io;as=Flagz").expect("a page");
        assert_eq!((page.media, page.warning), ("application/json", None));
        let start = r#"{"kind":"Flagz","apiVersion":"config.k8s.io/v1beta1","metadata":{"name":"kubelet"}"#;
        assert_eq!(page.body, format!(r#"{start},"flags":{{"v":"4"}}}}"#));
        for accept in ["application/xml", "application/json", "application/json;v=v1beta1;g=config.k8s.io"] {
            let said = answer(FLAGZ, accept).expect_err(accept).to_string();
            assert!(
                said.contains("text/plain, application/json;v=v1beta1;g=config.k8s.io;as=Flagz"),
                "{said}"
            );
        }
    }

    #[test]
    fn the_status_tells_times_versions_and_paths() {
        let page = answer(STATUSZ, "text/plain").expect("a page").body;
        let lines = [
            "Started: Thu Jan  1 00:00:00 UTC 1970",
            "Up: 1 hr 02 min 03 sec",
            "Binary version: 1.36.0",
            "Emulation version: 1.36",
            "Paths: /healthz /statusz",
        ];
        for line in lines {
            assert!(page.lines().any(|one| one == line), "{page}");
        }
        let accept = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz";
        let fields = r#""startTime":"1970-01-01T00:00:00Z","uptimeSeconds":3723,"goVersion":"none","binaryVersion":"1.36.0""#;
        let rest = r#""emulationVersion":"1.36","paths":["/healthz","/statusz"]}"#;
        let status = answer(STATUSZ, accept).expect("a page").body;
        assert!(status.ends_with(&format!("{fields},{rest}")), "{status}");
    }

    #[test]
    fn responses_warn_of_old_forms_and_refuse_others() {
        let program = program();
        let pages = Zpages { component: "kubelet", program: &program, paths: &[] };
        let response = pages.response(FLAGZ, "application/json;v=v1alpha1;g=config.k8s.io;as=Flagz");
        assert_eq!(
            response.headers()[WARNING],
            "299 - \"config.k8s.io/v1alpha1 Flagz is deprecated, ask /flagz for v1beta1\""
        );
        let plain = pages.response(STATUSZ, "");
        assert_eq!(
            (&plain.headers()[CONTENT_TYPE], plain.headers().get(WARNING)),
            (&HeaderValue::from_static(TEXT), None)
        );
        assert_eq!(pages.response(FLAGZ, "application/xml").status(), 406);
        assert_eq!(pages.response("/other", "").status(), 404);
    }
}
