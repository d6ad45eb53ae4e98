//! Reads every `<dir>/*.pb` and compares it with the `.json` beside it: `protobuf_compare <dir>`. For samples of
//! upstream's that are not part of this repository.

use serde_json::Value;

fn differences(path: &str, want: &Value, have: &Value, found: &mut Vec<String>) {
    match (want, have) {
        (Value::Object(want), Value::Object(have)) => {
            for key in want.keys().chain(have.keys().filter(|k| !want.contains_key(*k))) {
                let null = Value::Null;
                let (a, b) = (want.get(key).unwrap_or(&null), have.get(key).unwrap_or(&null));
                differences(&format!("{path}.{key}"), a, b, found);
            }
        }
        (Value::Array(want), Value::Array(have)) if want.len() == have.len() => {
            want.iter().zip(have).for_each(|(a, b)| differences(&format!("{path}[]"), a, b, found));
        }
        (want, have) if want != have => found.push(format!("{path}: want {want}, have {have}")),
        _ => {}
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: protobuf_compare <dir>")?;
    let (mut same, mut found) = (0, Vec::new());
    for file in std::fs::read_dir(dir)? {
        let path = file?.path();
        if path.extension().is_none_or(|e| e != "pb") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let want: Value = serde_json::from_slice(&std::fs::read(path.with_extension("json"))?)?;
        let before = found.len();
        match coracle_api::protobuf::decode(&std::fs::read(&path)?, None) {
            Ok(have) => differences(&name, &want, &have, &mut found),
            Err(error) => found.push(format!("{name}: {error}")),
        }
        same += usize::from(found.len() == before);
    }
    println!("{}\n{same} samples are the same", found.join("\n"));
    Ok(())
}
