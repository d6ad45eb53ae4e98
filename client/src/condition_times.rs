//! Conditions that nobody gave a time. Go's clients may leave `lastTransitionTime` out of a condition, and the server
//! then keeps null; our types want a time.

use serde_json::Value;

/// The time that a decoded condition has for null. Go's zero time: where Go's types are read and written, it is null.
const UNTOLD: &str = "0001-01-01T00:00:00Z";
const FIELD: &str = "lastTransitionTime";

/// The object with [`UNTOLD`] in each condition of its status that lacks a time; `None` where none does.
pub(crate) fn filled(text: &str) -> Option<String> {
    let mut object: Value = serde_json::from_str(text).ok()?;
    let mut lacking = false;
    conditions(object.get_mut("status")?, &mut |condition| {
        if condition.get(FIELD).is_none_or(Value::is_null) {
            condition.insert(FIELD.to_owned(), UNTOLD.into());
            lacking = true;
        }
    });
    lacking.then(|| object.to_string())
}

/// The object as it is to be written: what [`filled`] put in is null again.
pub(crate) fn emptied(body: Vec<u8>) -> Result<Vec<u8>, serde_json::Error> {
    if !body.windows(UNTOLD.len()).any(|text| text == UNTOLD.as_bytes()) {
        return Ok(body);
    }
    let mut object: Value = serde_json::from_slice(&body)?;
    if let Some(status) = object.get_mut("status") {
        conditions(status, &mut |condition| {
            if condition.get(FIELD).is_some_and(|time| time == UNTOLD) {
                condition.insert(FIELD.to_owned(), Value::Null);
            }
        });
    }
    serde_json::to_vec(&object)
}

type Fields = serde_json::Map<String, Value>;

/// Visits the conditions of a status and of whatever it holds: a claim's devices have some of their own.
fn conditions(value: &mut Value, visit: &mut impl FnMut(&mut Fields)) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_array_mut().filter(|_| name == "conditions") {
                    Some(all) => all.iter_mut().filter_map(Value::as_object_mut).for_each(&mut *visit),
                    None => conditions(value, visit),
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|value| conditions(value, visit)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Service;
    use serde_json::json;

    #[test]
    fn what_is_filled_in_is_null_again_when_written() {
        let timed = json!({ "type": "T", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "1970-01-01T00:01:00Z" });
        let timeless = json!({ "type": "U", "status": "True", "reason": "R", "message": "", FIELD: null });
        let object = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "a" },
            "status": { "conditions": [timed, timeless], "loadBalancer": {} } });
        let read: Service = serde_json::from_str(&filled(&object.to_string()).unwrap()).unwrap();
        let body = emptied(serde_json::to_vec(&read).unwrap()).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), object);
    }

    #[test]
    fn conditions_inside_of_lists_count_and_others_do_not() {
        let of = |device: Value| json!({ "status": { "devices": [{ "conditions": [device] }] } });
        let found: Value =
            serde_json::from_str(&filled(&of(json!({ "type": "T" })).to_string()).unwrap()).unwrap();
        assert_eq!(found, of(json!({ "type": "T", FIELD: UNTOLD })));
        assert_eq!(filled(&of(json!({ FIELD: "2026-01-01T00:00:00Z" })).to_string()), None);
        assert_eq!(filled(&json!({ "spec": { "conditions": [{}] } }).to_string()), None);
    }
}
