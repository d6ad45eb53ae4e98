//! `/statusz` and `/flagz`: what this process is and how it was started, for people
//! (<https://kubernetes.io/docs/reference/instrumentation/zpages/>).

use crate::wire::respond::Reply;
use crate::wire::{Clause, clauses};
use coracle_api::ApiError;
use coracle_api::meta::time::format_seconds;
use coracle_component_base::metrics;
use coracle_component_base::version::{GIT_VERSION, version};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

pub const STATUSZ: &str = "/statusz";
pub const FLAGZ: &str = "/flagz";

const COMPONENT: &str = "kube-apiserver";
const GROUP: &str = "config.k8s.io";
/// Served versions of the structured form; the second is deprecated.
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];

enum Form {
    Text,
    Structured(&'static str),
}

/// The first form of the header that is served; text where there is none.
fn form(accept: &str, kind: &str) -> Result<Form, ApiError> {
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
        let message =
            format!("only the following media types are accepted: text/plain, {}", known.join(", "));
        ApiError::new(406, "NotAcceptable", message)
    })
}

fn answer(accept: &str, kind: &str, fields: Value, text: impl FnOnce() -> String) -> Result<Reply, ApiError> {
    let version = match form(accept, kind)? {
        Form::Text => return Ok(Reply::text(StatusCode::OK, text())),
        Form::Structured(version) => version,
    };
    let mut object = fields;
    object["kind"] = kind.into();
    object["apiVersion"] = format!("{GROUP}/{version}").into();
    object["metadata"] = json!({ "name": COMPONENT });
    let mut reply = Reply::ok(object);
    if version != VERSIONS[0] {
        let page = kind.to_lowercase();
        reply
            .warnings
            .push(format!("{GROUP}/{version} {kind} is deprecated, ask /{page} for {}", VERSIONS[0]));
    }
    Ok(reply)
}

fn heading(page: &str) -> String {
    format!(
        "\n{COMPONENT} {page}\nWarning: This endpoint is not meant to be machine parseable, has no formatting \
         compatibility guarantees and is for debugging purposes only.\n\n"
    )
}

/// `paths` are those of the root page, sorted.
pub fn statusz(accept: &str, paths: &[String], now: Timestamp) -> Result<Reply, ApiError> {
    let began =
        metrics::process_started().and_then(|began| Timestamp::from_duration(began.try_into().ok()?).ok());
    let began = began.unwrap_or(now);
    let seconds = now.duration_since(began).as_secs().max(0);
    let build = version();
    let (runtime, binary) = (&build["goVersion"], GIT_VERSION.trim_start_matches('v'));
    let emulated = binary.rsplit_once('.').map_or(binary, |(release, _)| release);
    let fields = json!({
        "startTime": format_seconds(began), "uptimeSeconds": seconds, "goVersion": runtime,
        "binaryVersion": binary, "emulationVersion": emulated, "paths": paths,
    });
    answer(accept, "Statusz", fields, || {
        format!(
            "{}Started: {}\nUp: {} hr {:02} min {:02} sec\nGo version: {}\nBinary version: {binary}\nEmulation version: \
             {emulated}\nPaths: {}\n",
            heading("statusz"),
            began.strftime("%a %b %e %H:%M:%S UTC %Y"),
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60,
            runtime.as_str().unwrap_or_default(),
            paths.join(" "),
        )
    })
}

/// `flags` are the settings that were given, by the names of their flags.
pub fn flagz(accept: &str, flags: &BTreeMap<String, String>) -> Result<Reply, ApiError> {
    answer(accept, "Flagz", json!({ "flags": flags }), || {
        flags.iter().fold(heading("flagz"), |mut text, (name, value)| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name}={value}");
            text
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Content;

    fn text(reply: Reply) -> String {
        let Content::Text(_, bytes) = reply.content else { panic!("no text") };
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    fn object(reply: Reply) -> Value {
        let Content::Json(object) = reply.content else { panic!("no JSON") };
        object
    }

    #[test]
    fn people_get_text_and_programs_what_they_name() {
        let flags = BTreeMap::from([("v".to_owned(), "4".to_owned())]);
        for accept in ["", "*/*", "text/plain", "application/json;v=foo;g=config.k8s.io;as=Flagz, */*"] {
            let page = text(flagz(accept, &flags).unwrap());
            assert!(
                page.starts_with("\nkube-apiserver flagz\nWarning: ") && page.ends_with("\n\nv=4\n"),
                "{page}"
            );
        }
        let reply = flagz("application/json;v=v1beta1;g=config.k8s.io;as=Flagz", &flags).unwrap();
        assert!(reply.warnings.is_empty());
        let expected = json!({ "kind": "Flagz", "apiVersion": "config.k8s.io/v1beta1",
            "metadata": { "name": "kube-apiserver" }, "flags": { "v": "4" } });
        assert_eq!(object(reply), expected);
        let old = flagz("application/json;v=v1alpha1;g=config.k8s.io;as=Flagz", &flags).unwrap();
        assert_eq!(old.warnings.len(), 1);
        for accept in ["application/xml", "application/json", "application/json;v=v1beta1;g=config.k8s.io"] {
            assert_eq!(flagz(accept, &flags).err().map(|error| error.code), Some(406), "{accept}");
        }
    }

    #[test]
    fn the_status_tells_times_versions_and_paths() {
        let paths = ["/healthz".to_owned(), STATUSZ.to_owned()];
        let page = text(statusz("text/plain", &paths, Timestamp::now()).unwrap());
        for line in ["Binary version: 1.36.0", "Emulation version: 1.36", "Paths: /healthz /statusz"] {
            assert!(page.lines().any(|one| one == line), "{page}");
        }
        let accept = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz";
        let status = object(statusz(accept, &paths, Timestamp::now()).unwrap());
        assert_eq!(status["paths"], json!(paths));
        assert!(status["uptimeSeconds"].as_i64().is_some_and(|seconds| seconds < 24 * 3600), "{status}");
    }
}
