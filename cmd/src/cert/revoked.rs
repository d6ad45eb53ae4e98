//! The list of revoked certificates: a ConfigMap, which the API server reads on every request.

use super::found::Found;
use crate::table::table;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

pub const NAMESPACE: &str = "kube-system";
pub const NAME: &str = "coracle-revoked-certificates";

/// What the list says of a certificate beside its fingerprint, which alone is what counts; for people, and so that what
/// is over can be dropped.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry {
    pub serial: String,
    pub subject: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

impl Entry {
    pub fn of(found: &Found, now: Timestamp) -> Self {
        let (serial, subject) = (found.serial.clone(), found.subject.clone());
        Self { serial, subject, not_after: Some(found.not_after), ..Self::unknown(now) }
    }

    /// Of a certificate that is known by its fingerprint alone.
    pub fn unknown(now: Timestamp) -> Self {
        Self { revoked_at: Timestamp::from_second(now.as_second()).ok(), ..Self::default() }
    }
}

/// Adds to the list, and drops what is over.
pub async fn add(client: kube::Client, entries: &[(String, Entry)], now: Timestamp) -> Result<(), String> {
    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    let list = maps.get_opt(NAME).await.map_err(said)?;
    let mut changes = over(list.as_ref().and_then(|map| map.data.as_ref()), now);
    for (fingerprint, entry) in entries {
        let text = serde_json::to_string(entry).map_err(|e| e.to_string())?;
        changes.insert(fingerprint.clone(), Value::String(text));
    }
    if list.is_none() {
        let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
        let made = maps.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await;
        // Somebody else may have been first.
        if let Err(error) = made
            && !matches!(&error, kube::Error::Api(status) if status.code == 409)
        {
            return Err(said(error));
        }
    }
    let patch = Patch::Merge(json!({ "data": changes }));
    maps.patch(NAME, &PatchParams::default(), &patch).await.map_err(said)?;
    Ok(())
}

fn over(data: Option<&BTreeMap<String, String>>, now: Timestamp) -> Map<String, Value> {
    let is_over = |text: &str| {
        let entry: Entry = serde_json::from_str(text).unwrap_or_default();
        entry.not_after.is_some_and(|end| end < now)
    };
    let over = data.into_iter().flatten().filter(|(_, text)| is_over(text));
    over.map(|(fingerprint, _)| (fingerprint.clone(), Value::Null)).collect()
}

pub async fn list(kubeconfig: &Path) -> Result<(), String> {
    let maps: Api<ConfigMap> = Api::namespaced(crate::kubeconfig::client(kubeconfig).await?, NAMESPACE);
    let list = maps.get_opt(NAME).await.map_err(said)?.and_then(|map| map.data).unwrap_or_default();
    let mut rows = vec![["FINGERPRINT", "SUBJECT", "SERIAL", "EXPIRES", "REVOKED"].map(str::to_owned)];
    rows.extend(list.iter().map(|(fingerprint, text)| row(fingerprint, text)));
    print!("{}", table(&rows));
    Ok(())
}

fn row(fingerprint: &str, text: &str) -> [String; 5] {
    let entry: Entry = serde_json::from_str(text).unwrap_or_default();
    let or = |text: String| if text.is_empty() { "<unknown>".to_owned() } else { text };
    let time = |at: Option<Timestamp>| or(at.map(|at| at.strftime("%FT%TZ").to_string()).unwrap_or_default());
    [
        fingerprint.to_owned(),
        or(entry.subject),
        or(entry.serial),
        time(entry.not_after),
        time(entry.revoked_at),
    ]
}

fn said(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 401 => {
            "the API does not accept these credentials: they may be over, or revoked".to_owned()
        }
        kube::Error::Api(status) => status.message.clone(),
        other => format!("the API does not answer: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_again_and_dropped_when_they_are_over() {
        let now: Timestamp = "2026-01-08T00:00:00Z".parse().expect("a time");
        let entry = |end: &str| {
            let end = end.parse().expect("a time");
            let entry = Entry {
                serial: "0a".to_owned(),
                subject: "CN=a".to_owned(),
                not_after: Some(end),
                ..Entry::unknown(now)
            };
            serde_json::to_string(&entry).expect("JSON")
        };
        let text = entry("2026-01-09T00:00:00Z");
        let expected = r#"{"serial":"0a","subject":"CN=a","notAfter":"2026-01-09T00:00:00Z","revokedAt":"2026-01-08T00:00:00Z"}"#;
        assert_eq!(text, expected);
        assert_eq!(row("f", &text), ["f", "CN=a", "0a", "2026-01-09T00:00:00Z", "2026-01-08T00:00:00Z"]);
        assert_eq!(row("f", "?")[1..], ["<unknown>"; 4]);
        let data = [("a", text), ("b", entry("2026-01-07T00:00:00Z")), ("c", "?".to_owned())];
        let data: BTreeMap<_, _> = data.into_iter().map(|(key, text)| (key.to_owned(), text)).collect();
        assert_eq!(over(Some(&data), now), Map::from_iter([("b".to_owned(), Value::Null)]));
    }
}
