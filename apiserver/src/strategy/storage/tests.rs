use super::*;
use crate::strategy::testing::World;

#[test]
fn storage_classes() {
    let mut class = json!({ "metadata": { "name": "local-path",
        "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } }, "provisioner": "coracle/local-path" });
    StorageClasses.defaults(&mut class);
    let row = Value::Array(StorageClasses.row(&class, Timestamp::UNIX_EPOCH));
    assert_eq!(
        row,
        json!(["local-path (default)", "coracle/local-path", "Delete", "Immediate", false, "<unknown>"])
    );
    let mut changed = class.clone();
    changed["reclaimPolicy"] = "Retain".into();
    let mut errors = Vec::new();
    StorageClasses.validate_update(&changed, &class, &World::default().env(), &mut errors);
    assert_eq!(errors[0].to_string(), "reclaimPolicy: Forbidden: updates to reclaimPolicy are forbidden.");
    errors.clear();
    changed["provisioner"] = "".into();
    StorageClasses.validate(&changed, &World::default().env(), &mut errors);
    assert_eq!(errors[0].to_string(), "provisioner: Required value");
}

#[test]
fn drivers() {
    let mut driver = json!({ "metadata": { "name": "d" } });
    CsiDrivers.defaults(&mut driver);
    let row = Value::Array(CsiDrivers.row(&driver, Timestamp::UNIX_EPOCH));
    assert_eq!(row, json!(["d", true, false, false, "<unset>", false, "Persistent", "<unknown>"]));
}
