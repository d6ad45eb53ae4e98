use super::*;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;

fn pod(uid: &str, secret: &str) -> Pod {
    let volumes = json!([{ "name": "s", "secret": { "secretName": secret } },
        { "name": "c", "persistentVolumeClaim": { "claimName": "data" } }]);
    let spec = json!({ "containers": [], "volumes": volumes });
    let metadata = json!({ "name": uid, "namespace": "ns", "uid": uid });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

/// Everything that was told is on the disk when the last sender is gone and the thread has ended.
fn closed(last_seen: LastSeen) {
    let LastSeen { sealed, jobs, .. } = last_seen;
    drop(jobs);
    while Arc::strong_count(&sealed) > 1 {
        std::thread::yield_now();
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|e| e == "sealed")).collect()
}

#[test]
fn what_was_said_is_there_for_the_next_process_and_for_nobody_without_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("last-seen");
    let last_seen = LastSeen::open(&dir).unwrap();
    last_seen.put("secret/ns/s", None, &json!({ "data": "hush" }));
    last_seen.put_pod(&pod("u1", "s"));
    closed(last_seen);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(&dir.join(KEY))), (0o700, 0o600));
    for file in files(&dir) {
        assert_eq!(mode(&file), 0o600);
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(4).any(|part| part == b"hush"), "sealed");
    }
    let next = LastSeen::open(&dir).unwrap();
    assert_eq!(next.get::<Value>("secret/ns/s"), Some(json!({ "data": "hush" })));
    assert_eq!(next.pods(), [pod("u1", "s")]);
    closed(next);
    fs::remove_file(dir.join(KEY)).unwrap();
    let without = LastSeen::open(&dir).unwrap();
    assert_eq!((without.get::<Value>("secret/ns/s"), without.pods()), (None, Vec::new()));
}

#[test]
fn what_is_damaged_or_exchanged_is_no_entry() {
    let dir = tempfile::tempdir().unwrap();
    let last_seen = LastSeen::open(dir.path()).unwrap();
    last_seen.put("secret/ns/a", None, &"a");
    last_seen.put("secret/ns/b", None, &"b");
    let (a, b) = (last_seen.sealed.path("secret/ns/a"), last_seen.sealed.path("secret/ns/b"));
    closed(last_seen);
    let whole = fs::read(&a).unwrap();
    for damage in [vec![], whole[..whole.len() - 1].to_vec(), fs::read(&b).unwrap(), {
        let mut bytes = whole.clone();
        bytes[NONCE_LEN] ^= 1;
        bytes
    }] {
        fs::write(&a, damage).unwrap();
        let next = LastSeen::open(dir.path()).unwrap();
        assert_eq!(next.get::<String>("secret/ns/a"), None);
        assert_eq!(next.get::<String>("secret/ns/b").as_deref(), Some("b"));
    }
}

#[test]
fn what_no_pod_reads_goes_with_the_pod() {
    let dir = tempfile::tempdir().unwrap();
    let last_seen = LastSeen::open(dir.path()).unwrap();
    let (one, two) = (pod("u1", "s1"), pod("u2", "s2"));
    for (name, of) in [
        ("secret/ns/s1", None),
        ("secret/ns/s2", None),
        ("persistentvolumeclaim/ns/data", None),
        ("persistentvolume//pv", Some("persistentvolumeclaim/ns/data")),
        ("token/1", Some("pod/u1")),
        ("csidriver//d", None),
    ] {
        last_seen.put(name, of.map(str::to_owned), &name);
    }
    last_seen.put_pod(&one);
    last_seen.put_pod(&two);
    last_seen.retain([&two].into_iter());
    closed(last_seen);
    let next = LastSeen::open(dir.path()).unwrap();
    let mut left: Vec<String> = next.known.lock().keys().cloned().collect();
    left.sort_unstable();
    assert_eq!(
        left,
        ["csidriver//d", "persistentvolume//pv", "persistentvolumeclaim/ns/data", "pod/u2", "secret/ns/s2"]
    );
    next.retain(std::iter::empty());
    closed(next);
    assert_eq!(files(dir.path()).len(), 1);
}

#[test]
fn a_status_that_changes_is_not_written_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let last_seen = LastSeen::open(dir.path()).unwrap();
    let mut pod = pod("u1", "s");
    last_seen.put_pod(&pod);
    pod.metadata.resource_version = Some("2".to_owned());
    pod.status = serde_json::from_value(json!({})).unwrap();
    last_seen.put_pod(&pod);
    let before = last_seen.known.lock()["pod/u1"].digest;
    pod.status =
        serde_json::from_value(json!({ "conditions": [{ "type": "Ready", "status": "True" }] })).unwrap();
    last_seen.put_pod(&pod);
    assert_eq!(last_seen.known.lock()["pod/u1"].digest, before);
    pod.status = serde_json::from_value(json!({ "phase": "Succeeded" })).unwrap();
    last_seen.put_pod(&pod);
    assert_ne!(last_seen.known.lock()["pod/u1"].digest, before, "one that is over must not run again");
    assert!(!goes_on(&pod));
}
