//! KubeletConfiguration documents, and how one is laid over another
//! (<https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/#kubelet-conf-d>).

use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";
/// How files of a drop-in directory that count end; upstream's.
const DROP_IN: &str = "conf";

/// What one or more documents say, by the names of fields.
pub type Written = Map<String, Value>;

/// Reads a document, YAML or JSON. One without kind and version is refused, as upstream does: it might be anything.
///
/// # Errors
/// Why it is none.
pub fn parse(text: &str) -> Result<Written, String> {
    let value: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let Value::Object(mut written) = value else { return Err("not an object".to_owned()) };
    for (field, wanted) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let found = written.remove(field).unwrap_or_default();
        if found != wanted {
            return Err(format!("{field}: {found} is not {wanted:?}"));
        }
    }
    Ok(written)
}

/// Reads a file and then the drop-ins of a directory and those below it: of each `*.conf`, in the order of their paths,
/// what it says takes the place of what was said before. Objects are laid over each other field by field, lists are
/// replaced whole, `null` takes a value away (JSON merge patch, RFC 7386).
///
/// # Errors
/// All files that cannot be read, one each.
pub fn load(file: Option<&Path>, drop_ins: Option<&Path>) -> Result<Written, Vec<String>> {
    let mut mistakes = Vec::new();
    let mut paths: Vec<PathBuf> = file.map(Path::to_owned).into_iter().collect();
    if let Some(directory) = drop_ins {
        let mut found = Vec::new();
        if let Err(error) = collect(directory, &mut found) {
            mistakes.push(format!("{}: {error}", directory.display()));
        }
        found.sort();
        paths.extend(found);
    }
    let mut all = Written::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        match text.and_then(|text| parse(&text)) {
            Ok(written) => lay_over(&mut all, written),
            Err(why) => mistakes.push(format!("{}: {why}", path.display())),
        }
    }
    if mistakes.is_empty() { Ok(all) } else { Err(mistakes) }
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|end| end == DROP_IN) {
            found.push(path);
        }
    }
    Ok(())
}

/// What `over` says takes the place of what `written` said.
pub fn lay_over(written: &mut Written, over: Written) {
    for (name, value) in over {
        match (written.get_mut(&name), value) {
            (_, Value::Null) => drop(written.remove(&name)),
            (Some(Value::Object(below)), Value::Object(above)) => lay_over(below, above),
            (_, value) => drop(written.insert(name, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(fields: &str) -> String {
        format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}")
    }

    #[test]
    fn drop_ins_are_laid_over_the_file_in_the_order_of_their_paths() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, fields: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, document(fields)).unwrap();
            path
        };
        let file = write(
            "config.yaml",
            "maxPods: 10\nevictionHard: {nodefs.available: 5%, pid.available: 1%}\nclusterDNS: [192.0.2.1, 192.0.2.2]",
        );
        write("d/20-b.conf", "maxPods: 30\nevictionHard: {pid.available: null}");
        write("d/10-a.conf", "maxPods: 20\nclusterDNS: [192.0.2.3]\npodsPerCore: 5");
        write("d/15/deep.conf", "podsPerCore: 7");
        write("d/99.yaml", "maxPods: 99");
        let written = load(Some(&file), Some(&dir.path().join("d"))).unwrap();
        let expected = json!({ "maxPods": 30, "clusterDNS": ["192.0.2.3"], "podsPerCore": 7,
            "evictionHard": { "nodefs.available": "5%" } });
        assert_eq!(Value::Object(written), expected);
    }

    #[test]
    fn what_is_no_such_document_is_refused_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.conf"), "maxPods: 1\n").unwrap();
        std::fs::write(dir.path().join("b.conf"), document("a: [")).unwrap();
        let mistakes = load(Some(&dir.path().join("none.yaml")), Some(dir.path())).unwrap_err();
        assert_eq!(mistakes.len(), 3, "{mistakes:?}");
        assert!(mistakes[0].contains("none.yaml"), "{mistakes:?}");
        assert!(mistakes[1].contains("a.conf: apiVersion: null is not"), "{mistakes:?}");
        assert!(mistakes[2].contains("b.conf"), "{mistakes:?}");
    }
}
