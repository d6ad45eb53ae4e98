//! Reads every `<dir>/*.pb`, compares it with the `.json` beside it, and writes that JSON as protobuf again, which
//! must be the same bytes: `protobuf_compare <dir>`. For samples of upstream's that are not part of this repository.

use coracle_api::protobuf;
use serde_json::Value;
use std::error::Error;
use std::path::Path;

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

/// What is different in one sample.
fn compare(path: &Path, found: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let want: Value = serde_json::from_slice(&std::fs::read(path.with_extension("json"))?)?;
    let sample = std::fs::read(path)?;
    match protobuf::decode(&sample, None) {
        Ok(have) => differences(&name, &want, &have, found),
        Err(error) => {
            found.push(format!("{name}: {error}"));
            return Ok(());
        }
    }
    match protobuf::encode(&want) {
        Ok(bytes) if bytes == sample => {}
        Ok(bytes) => {
            let at = bytes.iter().zip(&sample).take_while(|(a, b)| a == b).count();
            found.push(format!("{name}: written differently from byte {at} on"));
        }
        Err(error) => found.push(format!("{name}: cannot be written: {error}")),
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: protobuf_compare <dir>")?;
    let (mut same, mut found) = (0, Vec::new());
    let mut paths: Vec<_> = std::fs::read_dir(dir)?.flatten().map(|file| file.path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "pb")) {
        let before = found.len();
        compare(path, &mut found)?;
        same += usize::from(found.len() == before);
    }
    println!("{}\n{same} samples are the same", found.join("\n"));
    Ok(())
}
