//! Which CPUs and memory containers have, over restarts: `cpu_manager_state` and `memory_manager_state`, with the fields
//! that tools read.

use crate::checkpoint::{self, CheckpointError, open, sealed};
use crate::placement::cpus::{self, StateError};
use crate::placement::memory::{Block, Memory};
use crate::placement::{CpuSet, Given};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

const CHECKSUM: &str = "checksum";

/// Why a kubelet cannot begin with the state that it finds.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    #[error(transparent)]
    File(#[from] CheckpointError),
    #[error(
        "configured policy {configured:?} differs from state checkpoint policy {found:?}: please drain this node and delete \
         the {manager} manager checkpoint file {} before restarting the kubelet",
        path.display()
    )]
    Policy { manager: &'static str, configured: &'static str, found: String, path: PathBuf },
    #[error("{} is of another machine, or of other reserved CPUs: please drain this node and delete it", path.display())]
    Cpus {
        path: PathBuf,
        #[source]
        source: StateError,
    },
    #[error("{} is of another machine, or of other reserved memory: please drain this node and delete it", path.display())]
    Memory { path: PathBuf },
}

/// One manager's file.
#[derive(Clone, Debug)]
pub struct File {
    manager: &'static str,
    pub path: PathBuf,
    policy: &'static str,
}

impl File {
    pub fn cpus(root: &Path, policy: &'static str) -> Self {
        Self { manager: "CPU", path: root.join("cpu_manager_state"), policy }
    }

    pub fn memory(root: &Path, policy: &'static str) -> Self {
        Self { manager: "memory", path: root.join("memory_manager_state"), policy }
    }

    /// What was kept under the same policy.
    fn read(&self) -> Result<Option<Map<String, Value>>, StateFileError> {
        let Some(found) = open(&self.path, CHECKSUM)? else { return Ok(None) };
        let policy = found.get("policyName").and_then(Value::as_str).unwrap_or_default();
        if policy != self.policy {
            return Err(StateFileError::Policy {
                manager: self.manager,
                configured: self.policy,
                found: policy.to_owned(),
                path: self.path.clone(),
            });
        }
        Ok(Some(found))
    }

    fn decode<T: DeserializeOwned>(&self, found: Value) -> Result<T, StateFileError> {
        let damaged =
            |e: serde_json::Error| CheckpointError::Damaged { path: self.path.clone(), why: e.to_string() };
        Ok(serde_json::from_value(found).map_err(damaged)?)
    }

    pub fn read_cpus(&self) -> Result<Option<cpus::State>, StateFileError> {
        self.read()?.map(|found| self.decode(Value::Object(found))).transpose()
    }

    pub fn read_memory(&self) -> Result<Option<Given<Vec<Block>>>, StateFileError> {
        let Some(mut found) = self.read()? else { return Ok(None) };
        self.decode(found.remove("entries").unwrap_or_else(|| json!({}))).map(Some)
    }

    pub fn text_of_cpus(&self, state: Option<&cpus::State>) -> String {
        let nothing = cpus::State { shared: CpuSet::default(), given: Given::new() };
        self.text(json!(state.unwrap_or(&nothing)))
    }

    pub fn text_of_memory(&self, memory: Option<&Memory>) -> String {
        self.text(match memory {
            Some(memory) => json!({ "machineState": memory.nodes(), "entries": memory.given() }),
            None => json!({}),
        })
    }

    fn text(&self, state: Value) -> String {
        let mut all = Map::from_iter([("policyName".to_owned(), json!(self.policy))]);
        if let Value::Object(state) = state {
            all.extend(state);
        }
        sealed(all, CHECKSUM)
    }

    /// Nothing is written that stands there already.
    pub fn write(&self, text: &str) -> std::io::Result<()> {
        if std::fs::read(&self.path).is_ok_and(|old| old == text.as_bytes()) {
            return Ok(());
        }
        checkpoint::write(&self.path, text.as_bytes())
    }
}
