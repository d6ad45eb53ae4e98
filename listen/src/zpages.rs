//! `/statusz` and `/flagz`: what a component is and how it was started, for people and, by their media types, for programs
//! (<https://kubernetes.io/docs/reference/instrumentation/zpages/>).

use crate::accept::{Clause, clauses};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

pub const STATUSZ: &str = "/statusz";
pub const FLAGZ: &str = "/flagz";

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
pub enum Page {
    Text(String),
    /// An object, and what to warn of.
    Structured(Value, Option<String>),
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

    fn statusz(&self, accept: &str, now: Timestamp) -> Result<Page, NotAcceptable> {
        let Program { started, go_version, version, .. } = self.program;
        let seconds = now.duration_since(*started).as_secs().max(0);
        let binary = version.trim_start_matches('v');
        let emulated = binary.rsplit_once('.').map_or(binary, |(release, _)| release);
        let fields = json!({
            "startTime": started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), "uptimeSeconds": seconds,
            "goVersion": go_version, "binaryVersion": binary, "emulationVersion": emulated, "paths": self.paths,
        });
        self.answer(accept, "Statusz", fields, |mut text| {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "Started: {}\nUp: {} hr {:02} min {:02} sec\nGo version: {go_version}\nBinary version: {binary}\n\
                 Emulation version: {emulated}\nPaths: {}",
                started.strftime("%a %b %e %H:%M:%S UTC %Y"),
                seconds / 3600,
                seconds / 60 % 60,
                seconds % 60,
                self.paths.join(" "),
            );
            text
        })
    }

    fn flagz(&self, accept: &str) -> Result<Page, NotAcceptable> {
        let flags = &self.program.flags;
        self.answer(accept, "Flagz", json!({ "flags": flags }), |text| {
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
        fields: Value,
        text: impl FnOnce(String) -> String,
    ) -> Result<Page, NotAcceptable> {
        let Form::Structured(version) = form(accept, kind)? else {
            return Ok(Page::Text(text(self.heading(&kind.to_lowercase()))));
        };
        let mut object = fields;
        object["kind"] = kind.into();
        object["apiVersion"] = format!("{GROUP}/{version}").into();
        object["metadata"] = json!({ "name": self.component });
        let warning = || {
            let page = kind.to_lowercase();
            format!("{GROUP}/{version} {kind} is deprecated, ask /{page} for {}", VERSIONS[0])
        };
        Ok(Page::Structured(object, (version != VERSIONS[0]).then(warning)))
    }

    fn heading(&self, page: &str) -> String {
        format!(
            "\n{} {page}\nWarning: This endpoint is not meant to be machine parseable, has no formatting \
             compatibility guarantees and is for debugging purposes only.\n\n",
            self.component
        )
    }
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
            let Ok(Page::Text(page)) = answer(FLAGZ, accept) else { panic!("no text for {accept}") };
            assert!(page.starts_with("\nkubelet flagz\nWarning: ") && page.ends_with("\n\nv=4\n"), "{page}");
        }
        let Ok(Page::Structured(object, None)) =
            answer(FLAGZ, "application/json;v=v1beta1;g=config.k8s.io;as=Flagz")
        else {
            panic!("no object without a warning")
        };
        let expected = json!({ "kind": "Flagz", "apiVersion": "config.k8s.io/v1beta1",
            "metadata": { "name": "kubelet" }, "flags": { "v": "4" } });
        assert_eq!(object, expected);
        let old = answer(FLAGZ, "application/json;v=v1alpha1;g=config.k8s.io;as=Flagz");
        assert!(matches!(old, Ok(Page::Structured(_, Some(_)))), "{old:?}");
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
        let Ok(Page::Text(page)) = answer(STATUSZ, "text/plain") else { panic!("no text") };
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
        let Ok(Page::Structured(status, None)) = answer(STATUSZ, accept) else { panic!("no object") };
        assert_eq!(status["paths"], json!(["/healthz", STATUSZ]));
        assert_eq!(
            (&status["uptimeSeconds"], &status["startTime"]),
            (&json!(3723), &json!("1970-01-01T00:00:00Z"))
        );
    }
}
