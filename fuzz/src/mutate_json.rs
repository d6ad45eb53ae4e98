//! JSON changed at random where bytes changed at random would seldom be JSON any more.

use serde_json::Value;

/// `value` changed in one to four places; `words` are what is put there. `below` gives numbers below its argument.
pub fn mutated_json(below: &mut impl FnMut(usize) -> usize, value: &Value, words: &[Value]) -> Value {
    let mut changed = value.clone();
    for _ in 0..=below(4) {
        change(below, &mut changed, words);
    }
    changed
}

/// Goes down a random way and changes something at its end.
fn change(below: &mut impl FnMut(usize) -> usize, value: &mut Value, words: &[Value]) {
    let size = match value {
        Value::Object(map) => map.len(),
        Value::Array(list) => list.len(),
        _ => 0,
    };
    if size > 0 && below(4) > 0 {
        let at = below(size);
        let child = match value {
            Value::Object(map) => map.values_mut().nth(at),
            Value::Array(list) => list.get_mut(at),
            _ => None,
        };
        return change(below, child.expect("counted"), words);
    }
    let word = words[below(words.len())].clone();
    match value {
        Value::Object(map) => {
            let at = below(map.len());
            let key = map.keys().nth(at).cloned();
            match (below(4), key) {
                (0, Some(key)) => drop(map.remove(&key)),
                (1, Some(key)) => drop(map.insert(key, word)),
                (2, Some(key)) => drop(map.insert(key.to_uppercase(), word)),
                _ => *value = word,
            }
        }
        Value::Array(list) => match below(4) {
            0 => list.clear(),
            1 => list.extend(list.clone()),
            2 => list.insert(below(list.len() + 1), word),
            _ => *value = word,
        },
        Value::String(text) if below(3) == 0 => {
            let at =
                (0..=below(text.len() + 1)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
            text.insert_str(at, &word.to_string());
        }
        _ => *value = word,
    }
}
