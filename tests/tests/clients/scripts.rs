//! The Python and JavaScript clients: their own programs, run against a server of their own.

use coracle_tests::{Cluster, clients};

fn passes(namespace: &str, program: &str) {
    let cluster = Cluster::simulated();
    let shell = cluster.in_namespace(namespace);
    std::fs::create_dir(shell.home().join("code")).expect("a folder");
    let code = match namespace {
        "python" => include_str!("scripts/python_client.py"),
        _ => include_str!("scripts/javascript_client.mjs"),
    };
    // As a module, because it is one; Node looks for packages beside it.
    std::fs::write(shell.home().join("code/client.mjs"), code).expect("the program");
    if namespace == "javascript" {
        std::os::unix::fs::symlink(clients::node_modules(), shell.home().join("code/node_modules"))
            .expect("a link");
    }
    let output = shell.run(&format!("{program} code/client.mjs"));
    println!("{output}");
    assert_eq!(output.code, 0, "some checks of the {namespace} client failed, see above");
    cluster.assert_alive();
}

#[test]
fn the_python_client() {
    passes("python", &clients::python().display().to_string());
}

#[test]
fn the_javascript_client() {
    passes("javascript", &clients::node().display().to_string());
}
