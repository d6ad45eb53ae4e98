//! The logs of the parts of this process, as the runtime would write those of their pods (CRI's format).

use super::log_path;
use crate::configuration::config::Config;
use jiff::Timestamp;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Bytes of a log before it is put aside; one that was put aside before is gone then. Two of them hold some ten thousand
/// lines.
const MAX_BYTES: u64 = 1 << 20;

struct Log {
    path: PathBuf,
    file: Option<(File, u64)>,
}

/// Writes lines to the logs of components. What cannot be written stands in the process's own log all the same.
pub struct ComponentLogs(Mutex<BTreeMap<&'static str, Log>>);

impl ComponentLogs {
    /// Of the components that `config` shows. Each log begins with a line about the process.
    pub fn open(config: &Config) -> Self {
        let log = |name| Log { path: log_path(config, name), file: None };
        let logs = config.components.iter().map(|component| (component.name, log(component.name)));
        let logs = Self(Mutex::new(logs.collect()));
        for component in &config.components {
            let process = std::process::id();
            logs.write(component.name, &format!("{} begins, as a part of process {process}", component.name));
        }
        logs
    }

    /// One line, without its end. Nothing where the component is not shown.
    pub fn write(&self, component: &str, line: &str) {
        let mut logs = self.0.lock();
        let Some(log) = logs.get_mut(component) else { return };
        if log.write(line).is_err() {
            // Opened anew for the next line.
            log.file = None;
        }
    }
}

impl Log {
    fn write(&mut self, line: &str) -> io::Result<()> {
        let text = format!("{} stderr F {line}\n", Timestamp::now());
        if self.file.as_ref().is_some_and(|(_, bytes)| *bytes > MAX_BYTES) {
            self.file = None;
            fs::rename(&self.path, self.path.with_extension("log.1"))?;
        }
        let (file, bytes) = match &mut self.file {
            Some(open) => open,
            None => {
                fs::create_dir_all(self.path.parent().unwrap_or(&self.path))?;
                let file = OpenOptions::new().append(true).create(true).mode(0o640).open(&self.path)?;
                let bytes = file.metadata()?.len();
                self.file.insert((file, bytes))
            }
        };
        file.write_all(text.as_bytes())?;
        *bytes += u64::try_from(text.len()).unwrap_or(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::components::{Component, ComponentState};
    use tokio::sync::watch;

    #[test]
    fn lines_are_written_as_the_runtime_writes_them_and_turn_over() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::new("n1", "192.0.2.1".parse().unwrap());
        config.log_dir = dir.path().to_owned();
        let state = ComponentState { failure: None, restarts: 0, since: Timestamp::now() };
        config.components = vec![Component { name: "coredns", state: watch::channel(state).1 }];
        let logs = ComponentLogs::open(&config);
        logs.write("coredns", "hello");
        logs.write("kube-proxy", "is not shown");
        let path = log_path(&config, "coredns");
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().map(|line| line.split_once(" stderr F ").unwrap()).collect();
        assert_eq!((lines.len(), lines[1].1), (2, "hello"));
        assert!(lines[1].0.parse::<Timestamp>().is_ok());
        let long = "x".repeat(1 << 16);
        (0..20).for_each(|_| logs.write("coredns", &long));
        assert!(fs::metadata(&path).unwrap().len() < MAX_BYTES);
        assert!(fs::metadata(path.with_extension("log.1")).unwrap().len() > MAX_BYTES);
    }
}
