//! Fields that somebody else decides.

use super::entry::{Entry, Operation};
use super::set::Set;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One field that an apply would change and that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// As messages name the manager: `"kubectl" using apps/v1`.
    pub manager: String,
    /// `.spec.replicas`
    pub path: String,
}

/// What one manager would lose.
pub(super) struct Claim {
    pub manager: String,
    pub fields: Set<'static>,
}

impl Claim {
    pub fn new(entry: &Entry<'_>, fields: Set<'static>) -> Self {
        Self { manager: describe(entry), fields }
    }

    pub fn conflicts(&self) -> Vec<Conflict> {
        let mut found = Vec::new();
        self.fields.for_each(&mut |path| {
            let path = path.iter().map(ToString::to_string).collect();
            found.push(Conflict { manager: self.manager.clone(), path });
        });
        found
    }
}

fn describe(entry: &Entry<'_>) -> String {
    let mut text = format!("{:?}", entry.manager);
    if !entry.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", entry.subresource));
    }
    if entry.operation == Operation::Update {
        text.push_str(&format!(" using {}", entry.api_version));
    }
    text
}

/// The message of the 409.
pub(super) fn message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", one.manager, one.path);
    }
    let mut by_manager: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for conflict in conflicts {
        by_manager.entry(&conflict.manager).or_default().push(&conflict.path);
    }
    let mut lines = Vec::new();
    for (manager, paths) in by_manager {
        lines.push(format!("conflicts with {manager}:"));
        lines.extend(paths.iter().map(|path| format!("- {path}")));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// The causes of the 409's details.
pub(super) fn causes(conflicts: &[Conflict]) -> Value {
    let cause = |c: &Conflict| json!({ "reason": "FieldManagerConflict", "message": format!("conflict with {}", c.manager), "field": c.path });
    conflicts.iter().map(cause).collect()
}
