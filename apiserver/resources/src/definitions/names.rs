//! Which of the names that a definition asks for it gets.

use super::conditions::Condition;
use coracle_requests::value::{at, str_at, strings_at};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Names in use by the other definitions of a group.
#[derive(Debug, Default)]
pub struct Taken {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Taken {
    /// `accepted` is a definition's `status.acceptedNames`.
    pub fn add(&mut self, accepted: &Value) {
        let resources = ["plural", "singular"].map(|field| str_at(accepted, field));
        let resources = resources.into_iter().chain(strings_at(accepted, "shortNames"));
        self.resources.extend(resources.filter(|name| !name.is_empty()).map(str::to_owned));
        let kinds = ["kind", "listKind"].map(|field| str_at(accepted, field));
        self.kinds.extend(kinds.into_iter().filter(|name| !name.is_empty()).map(str::to_owned));
    }
}

/// A name that somebody else has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conflict {
    Plural,
    Singular,
    Kind,
    ListKind,
    ShortNames,
}

impl Conflict {
    /// As the condition names it.
    fn reason(self) -> &'static str {
        match self {
            Self::Plural => "PluralConflict",
            Self::Singular => "SingularConflict",
            Self::Kind => "KindConflict",
            Self::ListKind => "ListKindConflict",
            Self::ShortNames => "ShortNamesConflict",
        }
    }
}

/// The names to accept, and the condition `NamesAccepted`. Every name is judged for itself: what is free is taken even
/// when another is not, and the last conflict is the one that is told, as upstream does.
pub fn accept(wanted: &Value, accepted: &Value, taken: &Taken) -> (Value, Condition) {
    let mut names = accepted.as_object().cloned().unwrap_or_default();
    let mut conflict = None;
    let mut one = |field: &str, used: &BTreeSet<String>, found: Conflict| {
        let name = str_at(wanted, field);
        if name != str_at(accepted, field) && used.contains(name) {
            conflict = Some((found, in_use(name)));
        } else {
            put(&mut names, field, name.into());
        }
    };
    one("plural", &taken.resources, Conflict::Plural);
    one("singular", &taken.resources, Conflict::Singular);
    one("kind", &taken.kinds, Conflict::Kind);
    one("listKind", &taken.kinds, Conflict::ListKind);
    let conflicts = short_name_conflicts(wanted, accepted, taken);
    if conflicts.is_empty() {
        put(&mut names, "shortNames", at(wanted, "shortNames").clone());
    } else if !matches!(conflict, Some((Conflict::Kind | Conflict::ListKind, _))) {
        conflict = Some((Conflict::ShortNames, aggregate(&conflicts)));
    }
    put(&mut names, "categories", at(wanted, "categories").clone());
    let condition = match conflict {
        None => Condition::new("NamesAccepted", true, "NoConflicts", "no conflicts found"),
        Some((found, message)) => Condition::new("NamesAccepted", false, found.reason(), message),
    };
    (Value::Object(names), condition)
}

fn in_use(name: &str) -> String {
    format!("{name:?} is already in use")
}

fn short_name_conflicts(wanted: &Value, accepted: &Value, taken: &Taken) -> Vec<String> {
    let own: BTreeSet<&str> = strings_at(accepted, "shortNames").collect();
    let new = strings_at(wanted, "shortNames").filter(|name| !own.contains(name));
    new.filter(|name| taken.resources.contains(*name)).map(in_use).collect()
}

/// Several errors as upstream's aggregate writes them.
pub fn aggregate(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

fn put(names: &mut Map<String, Value>, field: &str, value: Value) {
    let empty = match &value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        // The two that every definition has are there even when they are empty.
        Value::String(text) => text.is_empty() && !matches!(field, "plural" | "kind"),
        _ => false,
    };
    if empty {
        names.remove(field);
    } else {
        names.insert(field.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wanted() -> Value {
        json!({ "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
            "shortNames": ["w", "wd"], "categories": ["all"] })
    }

    #[test]
    fn free_names_are_given() {
        let (names, condition) = accept(&wanted(), &json!({ "plural": "", "kind": "" }), &Taken::default());
        assert_eq!(names, wanted());
        assert_eq!((condition.status, condition.reason), ("True", "NoConflicts"));
    }

    #[test]
    fn what_others_have_is_not_given_and_the_rest_is() {
        for (others, reason, message) in [
            (json!({ "plural": "widgets" }), "PluralConflict", "\"widgets\" is already in use"),
            (json!({ "singular": "widget" }), "SingularConflict", "\"widget\" is already in use"),
            (json!({ "shortNames": ["widget"] }), "SingularConflict", "\"widget\" is already in use"),
            (json!({ "kind": "Widget" }), "KindConflict", "\"Widget\" is already in use"),
            (json!({ "listKind": "WidgetList" }), "ListKindConflict", "\"WidgetList\" is already in use"),
            (json!({ "plural": "w" }), "ShortNamesConflict", "\"w\" is already in use"),
            (
                json!({ "plural": "w", "singular": "wd" }),
                "ShortNamesConflict",
                "[\"w\" is already in use, \"wd\" is already in use]",
            ),
        ] {
            let mut taken = Taken::default();
            taken.add(&others);
            let (names, condition) = accept(&wanted(), &json!({}), &taken);
            assert_eq!((condition.status, condition.reason), ("False", reason), "{others}");
            assert_eq!(condition.message, message);
            assert_ne!(names, wanted());
            assert_eq!(names["categories"], json!(["all"]));
        }
    }

    #[test]
    fn own_names_are_no_conflict() {
        let mut taken = Taken::default();
        taken.add(&json!({ "plural": "others", "shortNames": ["w"] }));
        let mut accepted = wanted();
        accepted["shortNames"] = json!(["w"]);
        let (names, condition) = accept(&wanted(), &accepted, &taken);
        assert_eq!((names, condition.status), (wanted(), "True"));
    }
}
