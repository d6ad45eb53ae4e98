//! The files that objects make, computed without touching anything.

use super::VolumeError;
use super::atomic_writer::{Payload, Projection};
use k8s_openapi::api::core::v1::{ConfigMap, KeyToPath, Secret};
use std::collections::BTreeMap;

/// Upstream's default for every source of files.
const DEFAULT_MODE: i32 = 0o644;

pub fn mode_bits(mode: Option<i32>, default: Option<i32>) -> u32 {
    u32::try_from(mode.or(default).unwrap_or(DEFAULT_MODE)).unwrap_or(0o644) & 0o7777
}

/// Picks `items`, or everything when there are none. A key that is not there is an error unless `optional`.
fn pick(
    object: &'static str,
    data: BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    default_mode: Option<i32>,
    optional: bool,
) -> Result<Payload, VolumeError> {
    let file = |data: Vec<u8>, mode| Projection { data, mode: mode_bits(mode, default_mode), owner: None };
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        return Ok(data.into_iter().map(|(key, data)| (key, file(data, None))).collect());
    };
    let mut payload = Payload::new();
    for item in items {
        match data.get(&item.key) {
            Some(data) => {
                payload.insert(item.path.clone(), file(data.clone(), item.mode));
            }
            None if optional => {}
            None => {
                let what = if object == "configmap" { "config key" } else { "secret key" };
                return Err(VolumeError::MissingKey { object, what, key: item.key.clone() });
            }
        }
    }
    Ok(payload)
}

pub fn config_map(
    object: &ConfigMap,
    items: Option<&[KeyToPath]>,
    mode: Option<i32>,
    optional: bool,
) -> Result<Payload, VolumeError> {
    let text = object.data.iter().flatten().map(|(key, text)| (key.clone(), text.clone().into_bytes()));
    let binary = object.binary_data.iter().flatten().map(|(key, data)| (key.clone(), data.0.clone()));
    pick("configmap", text.chain(binary).collect(), items, mode, optional)
}

pub fn secret(
    object: &Secret,
    items: Option<&[KeyToPath]>,
    mode: Option<i32>,
    optional: bool,
) -> Result<Payload, VolumeError> {
    let data = object.data.iter().flatten().map(|(key, data)| (key.clone(), data.0.clone())).collect();
    pick("secret", data, items, mode, optional)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn items_rename_and_set_modes() {
        let object: ConfigMap =
            serde_json::from_value(json!({ "data": { "a": "1" }, "binaryData": { "b": "Mg==" } })).unwrap();
        let all = config_map(&object, None, Some(0o400), false).unwrap();
        assert_eq!(all["b"], Projection { data: b"2".to_vec(), mode: 0o400, owner: None });
        let items: Vec<KeyToPath> = serde_json::from_value(
            json!([{ "key": "a", "path": "x/y", "mode": 0o600 }, { "key": "no", "path": "z" }]),
        )
        .unwrap();
        let some = config_map(&object, Some(&items), None, true).unwrap();
        assert_eq!(some.keys().collect::<Vec<_>>(), ["x/y"]);
        assert_eq!(some["x/y"].mode, 0o600);
        let missing = config_map(&object, Some(&items), None, false).unwrap_err();
        assert_eq!(missing.to_string(), "configmap references non-existent config key: no");
    }
}
