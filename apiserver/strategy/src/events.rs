//! Events, of the core group and of events.k8s.io: one set of objects with two faces. The fields of both are read
//! here (`involvedObject` and `regarding`, ...), so that either form will do.

use super::value::*;
use super::{
    Column, CreateStrategy, Env, ResourceFacts, SelectableFields, TableConvertor, UpdateStrategy, duration,
    rules, table,
};
use crate::{Facts, FieldLabels};
use coracle_api::{FieldError, Object};
use coracle_store::Durability;
use jiff::Timestamp;
use serde_json::Value;

pub struct Events;

const COLUMNS: &[Column] = &[
    table::string("Last Seen", "Time since the last occurrence"),
    table::string("Type", "Normal or Warning"),
    table::string("Reason", "Why, in one word"),
    table::string("Object", "What the event is about"),
    table::wide("Subobject", "Part of the object"),
    table::wide("Source", "Who reported the event"),
    table::string("Message", "What happened"),
    table::wide("First Seen", "Time since the first occurrence"),
    table::wide("Count", "Number of occurrences"),
    Column { priority: 1, ..table::NAME },
];

impl ResourceFacts for Events {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }

    fn durability(&self, _new: Option<&Object>, _old: Option<&Object>) -> Durability {
        Durability::Batched
    }
}

impl CreateStrategy for Events {
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        remove(object, "metadata.generation");
    }

    fn validate(&self, object: &Object, env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        about_own_namespace(object, errors);
        if has(object, "eventTime") {
            reported(object, is_new_api(env), errors);
        }
    }

    fn validate_create(&self, object: &Object, env: &Env, errors: &mut Vec<FieldError>) {
        if is_new_api(env) {
            of_the_new_api(object, &mut Errors(errors));
        }
    }
}

impl UpdateStrategy for Events {
    fn validate_update(&self, new: &Object, old: &Object, env: &Env, errors: &mut Vec<FieldError>) {
        if is_new_api(env) {
            only_the_series_goes_on(new, old, &mut Errors(errors));
        }
    }

    fn changes_generation(&self, _new: &Object, _old: &Object) -> bool {
        false
    }

    fn create_on_update(&self) -> bool {
        true
    }
}

impl TableConvertor for Events {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let seen = Seen::of(object, now);
        vec![
            seen.last.into(),
            str_at(object, "type").into(),
            str_at(object, "reason").into(),
            target(about(object)).into(),
            str_at(about(object), "fieldPath").into(),
            source(object).into(),
            either(object, "message", "note").trim().into(),
            seen.first.into(),
            seen.count.into(),
            name(object).into(),
        ]
    }
}

impl SelectableFields for Events {
    fn field_labels(&self, group: &str) -> FieldLabels {
        let names: &[&str] = match group {
            "" => &[
                "involvedObject.kind",
                "involvedObject.namespace",
                "involvedObject.name",
                "involvedObject.uid",
                "involvedObject.apiVersion",
                "involvedObject.resourceVersion",
                "involvedObject.fieldPath",
                "reason",
                "reportingComponent",
                "source",
                "type",
            ],
            _ => &[
                "reason",
                "regarding.kind",
                "regarding.namespace",
                "regarding.name",
                "regarding.uid",
                "regarding.apiVersion",
                "regarding.resourceVersion",
                "regarding.fieldPath",
                "reportingController",
                "type",
            ],
        };
        FieldLabels { names, ..FieldLabels::CORE }
    }

    fn fields(&self, object: &Object) -> Vec<(&'static str, String)> {
        const ABOUT: &[(&str, &str, &str)] = &[
            ("involvedObject.kind", "regarding.kind", "kind"),
            ("involvedObject.namespace", "regarding.namespace", "namespace"),
            ("involvedObject.name", "regarding.name", "name"),
            ("involvedObject.uid", "regarding.uid", "uid"),
            ("involvedObject.apiVersion", "regarding.apiVersion", "apiVersion"),
            ("involvedObject.resourceVersion", "regarding.resourceVersion", "resourceVersion"),
            ("involvedObject.fieldPath", "regarding.fieldPath", "fieldPath"),
        ];
        let controller = either(object, "reportingComponent", "reportingController");
        let component = either(object, "source.component", "deprecatedSource.component");
        let source = if component.is_empty() { controller } else { component };
        let mut fields = vec![
            ("reason", str_at(object, "reason").to_owned()),
            ("reportingComponent", controller.to_owned()),
            ("reportingController", controller.to_owned()),
            ("source", source.to_owned()),
            ("type", str_at(object, "type").to_owned()),
        ];
        for (core, new, field) in ABOUT {
            let value = str_at(about(object), field);
            fields.extend([(*core, value.to_owned()), (*new, value.to_owned())]);
        }
        fields
    }
}

crate::usual!(Events: StatusStrategy, DeleteStrategy, TransactionStrategy, ResetFieldsStrategy);

fn is_new_api(env: &Env) -> bool {
    env.group == "events.k8s.io"
}

fn either<'a>(object: &'a Object, core: &str, new: &str) -> &'a str {
    let text = str_at(object, core);
    if text.is_empty() { str_at(object, new) } else { text }
}

fn about(event: &Object) -> &Value {
    let object = at(event, "involvedObject");
    if object.is_null() { at(event, "regarding") } else { object }
}

fn target(about: &Value) -> String {
    let kind = str_at(about, "kind").to_lowercase();
    match str_at(about, "name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn source(event: &Object) -> String {
    let component = either(event, "source.component", "deprecatedSource.component");
    let (who, on) = if component.is_empty() {
        (either(event, "reportingComponent", "reportingController"), str_at(event, "reportingInstance"))
    } else {
        (component, either(event, "source.host", "deprecatedSource.host"))
    };
    if on.is_empty() { who.to_owned() } else { format!("{who}, {on}") }
}

struct Seen {
    first: String,
    last: String,
    count: i64,
}

impl Seen {
    fn of(event: &Object, now: Timestamp) -> Self {
        let time = |fields: &[&str]| {
            let found = fields.iter().map(|f| at(event, f)).find(|v| !v.is_null());
            found.map(|value| duration::age(value, now))
        };
        let first = time(&["firstTimestamp", "deprecatedFirstTimestamp", "eventTime"]);
        let first = first.unwrap_or_else(|| "<unknown>".to_owned());
        let count = |fields: &[&str]| fields.iter().find_map(|f| i64_at(event, f)).filter(|n| *n != 0);
        if has(event, "series") {
            let last = time(&["series.lastObservedTime"]).unwrap_or_else(|| "<unknown>".to_owned());
            return Self { first, last, count: count(&["series.count"]).unwrap_or(0) };
        }
        let last = time(&["lastTimestamp", "deprecatedLastTimestamp"]).unwrap_or_else(|| first.clone());
        Self { first, last, count: count(&["count", "deprecatedCount"]).unwrap_or(1) }
    }
}

/// Events about cluster-scoped objects stand in `default`. Those with an `eventTime` may also stand in `kube-system`, or in
/// another namespace than their object.
fn about_own_namespace(event: &Object, errors: &mut Errors) {
    let (own, of, timed) = (namespace(event), str_at(about(event), "namespace"), has(event, "eventTime"));
    let fits = match of {
        "" => own == "default" || timed && own == "kube-system",
        _ => timed || own == of,
    };
    if !fits {
        let path = Path::root("involvedObject").field("namespace");
        errors.invalid(&path, of, "does not match event.namespace");
    }
}

/// What an event that is made by the new API must say, and what it must leave to the old one.
fn of_the_new_api(event: &Object, errors: &mut Errors) {
    series(event, errors);
    if !has(event, "eventTime") {
        errors.required(&Path::root("eventTime"), "");
    }
    kind_of_event(event, errors);
    for field in ["firstTimestamp", "lastTimestamp", "count", "source"] {
        let value = at(event, field);
        let unset = value.is_null() || value == 0 || value.as_object().is_some_and(serde_json::Map::is_empty);
        if !unset {
            errors.invalid(&Path::root(field), "", "needs to be unset");
        }
    }
}

fn series(event: &Object, errors: &mut Errors) {
    if !has(event, "series") {
        return;
    }
    if i64_at(event, "series.count").unwrap_or(0) < 2 {
        errors.invalid(&Path::root("series.count"), "", "should be at least 2");
    }
    if !has(event, "series.lastObservedTime") {
        errors.required(&Path::root("series.lastObservedTime"), "");
    }
}

/// An update by the new API says that an event has happened again, and nothing else about it.
fn only_the_series_goes_on(new: &Object, old: &Object, errors: &mut Errors) {
    if at(new, "series") != at(old, "series") {
        series(new, errors);
    }
    let fields = [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ];
    for (field, shown) in fields {
        if at(new, field) != at(old, field) {
            errors.invalid(&Path::root(shown), at(new, field).clone(), "field is immutable");
        }
    }
}

fn kind_of_event(event: &Object, errors: &mut Errors) {
    let kind = str_at(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.invalid(&Path::root("type"), "", &format!("has invalid value: {kind}"));
    }
}

/// Fields that events of the new API must have.
fn reported(event: &Object, new_api: bool, errors: &mut Errors) {
    let controller = either(event, "reportingComponent", "reportingController");
    let path = Path::root(if new_api { "reportingController" } else { "reportingComponent" });
    match controller {
        "" => errors.required(&path, ""),
        name => rules::qualified_name(name, &path, errors),
    }
    for (field, limit) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        let value = str_at(event, field);
        if value.is_empty() {
            errors.required(&Path::root(field), "");
        } else if value.len() > limit {
            errors.invalid(&Path::root(field), "", &format!("can have at most {limit} characters"));
        }
    }
    if either(event, "message", "note").len() > 1024 {
        errors.invalid(&Path::root("message"), "", "can have at most 1024 characters");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_of_both_forms() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let core = json!({ "metadata": { "name": "e" }, "involvedObject": { "kind": "Pod", "name": "p" },
            "type": "Normal", "reason": "Pulled", "message": "m\n", "count": 3,
            "source": { "component": "kubelet", "host": "n" },
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:05:00Z" });
        let row = Value::Array(Events.row(&core, now));
        assert_eq!(row, json!(["5m", "Normal", "Pulled", "pod/p", "", "kubelet, n", "m", "10m", 3, "e"]));
        let new = json!({ "metadata": { "name": "e" }, "regarding": { "kind": "Pod", "name": "p" },
            "type": "Normal", "reason": "Scheduled", "note": "m", "reportingController": "default-scheduler",
            "eventTime": "2026-01-01T00:09:00.000000Z" });
        let row = Value::Array(Events.row(&new, now));
        assert_eq!(
            row,
            json!(["60s", "Normal", "Scheduled", "pod/p", "", "default-scheduler", "m", "60s", 1, "e"])
        );
    }

    #[test]
    fn the_new_api_changes_the_series_alone() {
        let old = json!({ "involvedObject": { "kind": "Pod" }, "message": "m", "series": { "count": 2 } });
        let refused = |patch: Value| {
            let (mut new, mut errors) = (old.clone(), Vec::new());
            super::super::testing::merge(&mut new, &patch);
            only_the_series_goes_on(&new, &old, &mut Errors(&mut errors));
            errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let seen = "2026-01-01T00:00:00.000000Z";
        assert_eq!(refused(json!({ "series": { "count": 3, "lastObservedTime": seen } })), "");
        assert_eq!(refused(json!({ "message": "n" })), "message: Invalid value: \"n\": field is immutable");
        assert_eq!(
            refused(json!({ "series": { "count": 1 } })),
            "series.count: Invalid value: \"\": should be at least 2; series.lastObservedTime: Required value"
        );
    }

    #[test]
    fn an_event_stands_beside_its_object() {
        let mut errors = Vec::new();
        let event = json!({ "metadata": { "namespace": "a" }, "involvedObject": { "namespace": "b" } });
        about_own_namespace(&event, &mut Errors(&mut errors));
        assert_eq!(
            errors[0].to_string(),
            "involvedObject.namespace: Invalid value: \"b\": does not match event.namespace"
        );
    }
}
