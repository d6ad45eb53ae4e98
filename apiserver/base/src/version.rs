//! What `/version` says.

use serde_json::{Value, json};

/// The version of Kubernetes whose API this server speaks.
pub const MAJOR: &str = "1";
pub const MINOR: &str = "36";
pub const GIT_VERSION: &str = "v1.36.0";

/// The fields of the struct.
pub const ORDER: &[&str] = &[
    "major",
    "minor",
    "emulationMajor",
    "emulationMinor",
    "minCompatibilityMajor",
    "minCompatibilityMinor",
    "gitVersion",
    "gitCommit",
    "gitTreeState",
    "buildDate",
    "goVersion",
    "compiler",
    "platform",
];

/// No Go takes part.
pub const GO_VERSION: &str = "none";

/// The `version.Info` of upstream. The compiler's field names ours.
pub fn version() -> Value {
    json!({
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": "35",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": GO_VERSION,
        "compiler": "rustc",
        "platform": format!("linux/{}", architecture()),
    })
}

/// Go's name of the processor architecture.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}
