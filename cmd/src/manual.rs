//! The flags once more, for those who do not ask `--help`: completions of shells, and manual pages.

use crate::args::{Cli, CompletionArgs, ManualArgs};
use clap::CommandFactory;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

pub fn completion(args: &CompletionArgs) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "coracle", &mut text);
    // Somebody may read only its beginning.
    ended(std::io::stdout().write_all(&text), "standard output")
}

pub fn command(args: &ManualArgs) -> ExitCode {
    ended(pages(&args.folder), &args.folder.display().to_string())
}

/// One page for each command, named as `man` looks for them: `coracle-db-check.1`.
fn pages(folder: &Path) -> std::io::Result<()> {
    clap_mangen::generate_to(Cli::command(), folder)
}

fn ended(done: std::io::Result<()>, place: &str) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("coracle: {place}: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap_complete::Shell;

    #[test]
    fn every_command_that_is_shown_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        pages(folder.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(read("coracle.1").contains("Kubernetes in one small binary"));
        assert!(read("coracle-server.1").contains("data\\-dir"), "{}", read("coracle-server.1"));
        assert!(read("coracle-db-check.1").contains("coracle"));
        assert!(!folder.path().join("coracle-manual.1").exists(), "what is hidden has none");
    }

    #[test]
    fn every_shell_completes_the_flags_of_a_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "coracle", &mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("service-cluster-ip-range"), "{shell}");
        }
    }
}
