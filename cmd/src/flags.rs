//! What `/statusz` and `/flagz` tell of this process: among it the settings that it was given, by the names of their flags.

use coracle_apiserver::metrics::process_started;
use coracle_apiserver::version::{GIT_VERSION, GO_VERSION};
use coracle_listen::zpages::Program;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// This process, of a command line without the program and its verb, and of the configuration file.
pub fn program(arguments: &[String], file: &Value) -> Arc<Program> {
    let started = process_started().and_then(|began| Timestamp::from_duration(began.try_into().ok()?).ok());
    Arc::new(Program {
        flags: given(arguments, file),
        started: started.unwrap_or_else(Timestamp::now),
        version: GIT_VERSION,
        go_version: GO_VERSION,
    })
}

/// This process, of its command line alone.
pub fn this_program() -> Arc<Program> {
    program(&std::env::args().skip(2).collect::<Vec<_>>(), &Value::Null)
}

/// Of a command line without the program and its verb, and of the configuration file; the command line wins.
fn given(arguments: &[String], file: &Value) -> BTreeMap<String, String> {
    let mut flags = BTreeMap::new();
    of_file(file, &mut flags);
    let mut rest = arguments.iter().peekable();
    while let Some(argument) = rest.next() {
        let Some(flag) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else { continue };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                (flag, rest.next_if(|next| !next.starts_with("--")).cloned().unwrap_or("true".to_owned()))
            }
        };
        flags.insert(name.to_owned(), value);
    }
    if let Some(token) = flags.get_mut("token") {
        // Whoever may read the page must not join by it.
        "<set>".clone_into(token);
    }
    flags
}

/// The file's names are those of the flags in camelCase; its sections only group them.
fn of_file(section: &Value, flags: &mut BTreeMap<String, String>) {
    for (name, value) in section.as_object().into_iter().flatten() {
        let text = match value {
            Value::Null => continue,
            Value::Object(_)
                if matches!(
                    name.as_str(),
                    "apiServer" | "authentication" | "authorization" | "backup" | "encryption"
                ) =>
            {
                of_file(value, flags);
                continue;
            }
            Value::Object(entries) => {
                let between = if name.ends_with("Hard") || name.ends_with("Soft") { '<' } else { '=' };
                let entry = |(key, value): (&String, &Value)| format!("{key}{between}{}", shown(value));
                let entries = entries.iter().map(entry);
                entries.collect::<Vec<_>>().join(",")
            }
            Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(","),
            other => shown(other),
        };
        flags.insert(dashed(name), text);
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn dashed(name: &str) -> String {
    name.chars().fold(String::new(), |mut text, letter| {
        if letter.is_ascii_uppercase() {
            text.push('-');
        }
        text.push(letter.to_ascii_lowercase());
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_command_line_wins() {
        let line =
            ["--https-port", "7443", "--audit-log-compress", "--data-dir=/d", "-v", "4", "--config", "f"];
        let file = json!({
            "httpsPort": 1, "disable": ["dns", "proxy"], "nodeName": null,
            "apiServer": { "auditLogPath": "-" }, "evictionHard": { "pid.available": "5%" },
            "evictionSoftGracePeriod": { "pid.available": "1m" },
        });
        let flags = given(&line.map(str::to_owned), &file);
        let expected = [
            ("audit-log-compress", "true"),
            ("audit-log-path", "-"),
            ("config", "f"),
            ("data-dir", "/d"),
            ("disable", "dns,proxy"),
            ("eviction-hard", "pid.available<5%"),
            ("eviction-soft-grace-period", "pid.available=1m"),
            ("https-port", "7443"),
            ("v", "4"),
        ];
        assert_eq!(flags, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }
}
