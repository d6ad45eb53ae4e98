//! `coracle check`: what this machine lacks, how to mend it, and with `--fix` the mending itself.
//!
//! What is looked at and what is changed lies below one [`Machine`], so that tests have one of their own. A finding's remedy
//! is a list of [`Step`]s that are safe to take twice; what could harm somebody else's work is said and never done.

mod filters;
mod kernel;
mod machine;
mod programs;
mod resources;
mod step;

use crate::args::CheckArgs;
use crate::process::fail;
use machine::Machine;
use std::process::ExitCode;
use step::Step;

/// What was looked for, and what came out.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    what: String,
    verdict: Verdict,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    /// The node works, and worse than it could.
    Poor(Remedy),
    /// The node does not work.
    Missing(Remedy),
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Remedy {
    /// For people, in one line.
    say: String,
    /// None: nothing that a program should do.
    steps: Vec<Step>,
}

impl Remedy {
    fn by_hand(say: impl Into<String>) -> Self {
        Self { say: say.into(), steps: Vec::new() }
    }

    fn by(say: impl Into<String>, steps: impl IntoIterator<Item = Step>) -> Self {
        Self { say: say.into(), steps: steps.into_iter().collect() }
    }
}

impl Finding {
    fn good(what: impl Into<String>) -> Self {
        Self { what: what.into(), verdict: Verdict::Good }
    }

    fn missing_unless(good: bool, what: impl Into<String>, remedy: impl FnOnce() -> Remedy) -> Self {
        let verdict = if good { Verdict::Good } else { Verdict::Missing(remedy()) };
        Self { what: what.into(), verdict }
    }

    fn poor_unless(good: bool, what: impl Into<String>, remedy: impl FnOnce() -> Remedy) -> Self {
        let verdict = if good { Verdict::Good } else { Verdict::Poor(remedy()) };
        Self { what: what.into(), verdict }
    }

    fn remedy(&self) -> Option<&Remedy> {
        match &self.verdict {
            Verdict::Good => None,
            Verdict::Poor(remedy) | Verdict::Missing(remedy) => Some(remedy),
        }
    }

    fn print(&self) {
        let word = match self.verdict {
            Verdict::Good => "ok     ",
            Verdict::Poor(_) => "poor   ",
            Verdict::Missing(_) => "missing",
        };
        println!("{word}  {}", self.what);
        if let Some(remedy) = self.remedy() {
            println!("         {}", remedy.say);
        }
    }
}

/// Prints every finding. Exit code 0: nothing is missing, after what was mended.
pub fn run(args: &CheckArgs) -> ExitCode {
    let machine = Machine::this();
    if args.fix && !nix::unistd::geteuid().is_root() {
        return fail("check: --fix changes the machine, and needs root");
    }
    let mut findings = look(&machine, args);
    if args.fix {
        mend(&machine, &findings);
        findings = look(&machine, args);
    }
    findings.iter().for_each(Finding::print);
    let missing = findings.iter().any(|finding| matches!(finding.verdict, Verdict::Missing(_)));
    if missing { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn look(machine: &Machine, args: &CheckArgs) -> Vec<Finding> {
    let endpoint = &args.container_runtime_endpoint;
    let mut findings = programs::look(machine, endpoint);
    findings.extend(kernel::look(machine));
    findings.extend(filters::look(machine));
    findings.extend(resources::look(machine, &args.data_dir));
    findings
}

/// Takes the steps of each remedy; one that fails leaves out the rest of its own.
fn mend(machine: &Machine, findings: &[Finding]) {
    for (finding, remedy) in findings.iter().filter_map(|finding| Some((finding, finding.remedy()?))) {
        if remedy.steps.is_empty() {
            println!("by hand  {}", finding.what);
            continue;
        }
        for step in &remedy.steps {
            println!("doing    {step}");
            if let Err(why) = step.take(machine) {
                println!("failed   {why}");
                break;
            }
        }
    }
    println!();
}

#[cfg(test)]
mod tests;
