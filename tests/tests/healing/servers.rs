//! Several servers on several members of etcd, of which one fails after the other. Needs root, for namespaces; says so where it
//! does nothing.

use std::process::Command;

/// A fault takes some seconds, and its end as much; of a seed that is printed. `scripts/faults` goes on for longer.
const SECONDS: &str = "25";

#[test]
fn no_fault_of_one_machine_loses_or_doubles_a_write() {
    let status = Command::new(env!("CARGO_BIN_EXE_faults"))
        .args(["--seconds", SECONDS])
        .env("CORACLE_BIN", coracle_tests::coracle())
        .status();
    let status = status.expect("the program was built with this test");
    assert!(status.success(), "{status}; the lines above say what was seen");
}
