//! The power goes while the store is written to. Needs root and /dev/fuse; says so where it does nothing.

use std::process::Command;

/// Long enough for some sixty cuts and a dozen damages, of a seed that it prints; `scripts/power` runs more of them.
const SECONDS: &str = "75";

#[test]
fn no_cut_takes_what_was_acknowledged() {
    let status = Command::new(env!("CARGO_BIN_EXE_power")).args(["--time", SECONDS]).status();
    let status = status.expect("the program was built with this test");
    assert!(status.success(), "{status}; the lines above say what was seen");
}
