//! The machine that is looked at: its files below a root, and its programs.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub struct Machine {
    root: PathBuf,
    /// Where programs are looked for.
    path: OsString,
}

impl Machine {
    pub fn this() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into());
        Self { root: "/".into(), path }
    }

    #[cfg(test)]
    pub fn below(root: &Path) -> Self {
        Self { root: root.to_owned(), path: root.join("bin").into() }
    }

    /// Where a file of the machine is.
    pub fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Empty where there is none.
    pub fn text(&self, path: impl AsRef<Path>) -> String {
        std::fs::read(self.at(path))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.at(path).exists()
    }

    /// Written whole or not at all; a file that is there keeps its mode, and one that is changed is kept beside it once.
    pub fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let target = self.at(path);
        let kept = target.with_extension("before-coracle");
        let mode = match std::fs::metadata(&target) {
            Ok(meta) => {
                if !kept.exists() {
                    std::fs::copy(&target, &kept)?;
                }
                meta.permissions().mode()
            }
            Err(_) => {
                target.parent().map_or(Ok(()), std::fs::create_dir_all)?;
                0o644
            }
        };
        let new = target.with_extension("new-by-coracle");
        std::fs::write(&new, text)?;
        // The boot partition of a Raspberry Pi knows no modes.
        let _ = std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode));
        std::fs::File::open(&new)?.sync_all()?;
        std::fs::rename(&new, &target)
    }

    /// A setting of the kernel, now.
    pub fn set(&self, key: &str, value: &str) -> io::Result<()> {
        std::fs::write(self.at(setting(key)), value)
    }

    pub fn find(&self, program: &str) -> Option<PathBuf> {
        std::env::split_paths(&self.path).map(|dir| dir.join(program)).find(|file| file.is_file())
    }

    /// What a program prints; the error says what it printed on standard error.
    pub fn run(&self, program: &str, arguments: &[&str], input: Option<&[u8]>) -> Result<String, String> {
        let Some(path) = self.find(program) else { return Err(format!("there is no program {program}")) };
        let failed = |error: io::Error| format!("{program}: {error}");
        let mut child = Command::new(path)
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
            io::Write::write_all(&mut stdin, input).map_err(failed)?;
        }
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        Err(format!("{program} {}: {said}", arguments.join(" ")))
    }
}

/// Where the kernel shows a setting (sysctl(8)).
pub fn setting(key: &str) -> String {
    format!("/proc/sys/{}", key.replace('.', "/"))
}
