//! Images made by hand, so that tests with real containers need no registry on the Internet.

use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name under which the tests use the image that [`busybox`] makes.
pub const BUSYBOX: &str = "docker.io/library/busybox:1.36";

/// Makes a busybox image from the machine's static busybox as a docker archive below `dir`, for `ctr images import`
/// and skopeo. `name` is the image's name in the archive. `Err` says what is missing.
pub fn busybox(dir: &Path, name: &str) -> Result<PathBuf, String> {
    let root = dir.join("root");
    for below in ["bin", "tmp", "etc", "root", "usr"] {
        std::fs::create_dir_all(root.join(below)).map_err(|e| e.to_string())?;
    }
    let found = ["/bin/busybox", "/usr/bin/busybox"].map(Path::new).into_iter().find(|p| p.is_file());
    let busybox = found.ok_or("busybox is missing: apt-get install busybox-static")?;
    std::fs::copy(busybox, root.join("bin/busybox")).map_err(|e| e.to_string())?;
    let applets = run(Command::new(busybox).arg("--list"))?;
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        // A second run finds them there.
        let _ = std::os::unix::fs::symlink("busybox", root.join("bin").join(applet));
    }
    name_service(&root)?;
    write(
        &root.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    )?;
    write(&root.join("etc/group"), "root:x:0:\nnogroup:x:65534:\n")?;
    let tar = |from: &Path, to: &Path, what: &[&str]| {
        let mut command = Command::new("tar");
        command
            .args(["--owner=0", "--group=0", "--sort=name", "--mtime=@0", "-C"])
            .arg(from)
            .arg("-cf")
            .arg(to);
        run(command.args(what))
    };
    tar(&root, &dir.join("layer.tar"), &["."])?;
    let digest = run(Command::new("sha256sum").arg(dir.join("layer.tar")))?;
    let digest = digest.split(' ').next().unwrap_or_default();
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = json!({
        "architecture": architecture, "os": "linux", "config": {"Cmd": ["sh"], "Env": ["PATH=/bin", "FROM_IMAGE=yes"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    write(&dir.join("config.json"), &config.to_string())?;
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
    write(&dir.join("manifest.json"), &manifest.to_string())?;
    let archive = dir.join("busybox.tar");
    tar(dir, &archive, &["manifest.json", "config.json", "layer.tar"])?;
    Ok(archive)
}

/// A static glibc program looks names up through shared libraries after all.
fn name_service(root: &Path) -> Result<(), String> {
    const FILES: [&str; 5] =
        ["libc.so.6", "libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2", "ld-linux-x86-64.so.2"];
    let known = run(Command::new("/sbin/ldconfig").arg("-p")).unwrap_or_default();
    for file in FILES.into_iter().chain(["ld-linux-aarch64.so.1"]) {
        let line = known.lines().find(|line| line.trim_start().starts_with(&format!("{file} ")));
        let Some(path) = line.and_then(|line| line.rsplit(' ').next()) else { continue };
        let to = root.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().unwrap_or(root)).map_err(|e| format!("{}: {e}", to.display()))?;
        std::fs::copy(path, &to).map_err(|e| format!("{path}: {e}"))?;
    }
    write(&root.join("etc/nsswitch.conf"), "hosts: files dns\n")
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
