//! Kernel settings that the kubelet relies on, upstream's: memory may be promised beyond what there is, as pods are given
//! limits and not shares; a kernel that is out of memory kills a process and goes on; one that is broken starts anew; and
//! root's containers have keys enough.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Below /proc/sys.
const WANTED: [(&str, i64); 6] = [
    ("vm/overcommit_memory", 1),
    ("vm/panic_on_oom", 0),
    ("kernel/panic", 10),
    ("kernel/panic_on_oops", 1),
    ("kernel/keys/root_maxkeys", 1_000_000),
    ("kernel/keys/root_maxbytes", 25_000_000),
];

#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    #[error("protectKernelDefaults is set, and the kernel's settings differ: {}", .0.join(", "))]
    Differs(Vec<String>),
}

fn read(path: &Path) -> io::Result<i64> {
    fs::read_to_string(path)?.trim().parse().map_err(io::Error::other)
}

/// Sets what is not as wanted, and returns what could not be set. With `protect` nothing is set: any difference is an
/// error. `root` is /proc/sys.
pub fn prepare(root: &Path, protect: bool) -> Result<Vec<(PathBuf, io::Error)>, KernelError> {
    let (mut differs, mut failed) = (Vec::new(), Vec::new());
    for (name, wanted) in WANTED {
        let path = root.join(name);
        let now = read(&path);
        if now.as_ref().is_ok_and(|now| *now == wanted) {
            continue;
        }
        if protect {
            let now = now.map_or_else(|error| error.to_string(), |now| now.to_string());
            differs.push(format!("{} is {now}, wanted {wanted}", name.replace('/', ".")));
        } else if let Err(error) = fs::write(&path, wanted.to_string()) {
            failed.push((path, error));
        } else {
            tracing::info!(setting = %name.replace('/', "."), wanted, "kernel setting changed");
        }
    }
    if differs.is_empty() { Ok(failed) } else { Err(KernelError::Differs(differs)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_set_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (name, wanted) in WANTED {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{wanted}\n")).unwrap();
        }
        assert!(prepare(dir.path(), true).unwrap().is_empty());
        fs::write(dir.path().join("vm/overcommit_memory"), "0\n").unwrap();
        fs::write(dir.path().join("kernel/panic"), "0\n").unwrap();
        let text = prepare(dir.path(), true).unwrap_err().to_string();
        assert!(
            text.ends_with("vm.overcommit_memory is 0, wanted 1, kernel.panic is 0, wanted 10"),
            "{text}"
        );
        assert_eq!(read(&dir.path().join("kernel/panic")).unwrap(), 0, "nothing was set");
        assert!(prepare(dir.path(), false).unwrap().is_empty());
        assert!(prepare(dir.path(), true).unwrap().is_empty(), "all are set");
        fs::remove_dir_all(dir.path().join("kernel/keys")).unwrap();
        assert_eq!(prepare(dir.path(), false).unwrap().len(), 2, "what is not there cannot be set");
    }
}
