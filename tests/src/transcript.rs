//! Sessions at a terminal, written down with what they must print.
//!
//! A transcript is made of blocks, with empty lines between them:
//!
//! ```text
//! # A comment.
//! $ kubectl create configmap a --from-literal=x=1
//! configmap/a created
//!
//! ~ kubectl get pod p -o jsonpath={.status.phase}
//! Running
//!
//! $ kubectl get pod nobody
//! ? 1
//! Error from server (NotFound): pods "nobody" not found
//!
//! $ kubectl apply -f -
//! < apiVersion: v1
//! < kind: Namespace
//! < metadata: {name: a}
//! namespace/a created
//! ```
//!
//! `$` runs a command once, `~` again and again until it prints what it must; `?` says with which exit code it ends
//! (0 without); `<` lines are its standard input. What follows is its standard output and after that its standard
//! error. White space and empty lines do not count, and times such as `5m3s` equal each other. `[..]` stands for
//! anything within a line, `...` for any number of lines. `@1.37 ` before a line makes it one for kubectl 1.37 only,
//! `@!1.37 ` for any other.

use crate::shell::{Output, Shell};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Longest wait of a `~` block. States come about within a second or two on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How soon a `~` block runs its command again.
const AGAIN: Duration = Duration::from_millis(150);

#[derive(Debug, Default)]
struct Block {
    line: usize,
    command: String,
    eventually: bool,
    code: i32,
    input: String,
    expected: Vec<String>,
}

/// Runs a transcript to its end, whatever fails on the way, and returns a text for each block that failed.
pub fn play(shell: &Shell, name: &str, text: &str, version: &str) -> Vec<String> {
    parse(text, version).iter().filter_map(|block| run(shell, name, block)).collect()
}

fn run(shell: &Shell, name: &str, block: &Block) -> Option<String> {
    let begun = Instant::now();
    loop {
        let output = shell.run_with(&block.command, &block.input);
        let printed = normal(&format!("{}\n{}", output.stdout, output.stderr));
        let right = output.code == block.code && lines_match(&block.expected, &printed);
        if right {
            return None;
        }
        if !block.eventually || begun.elapsed() > PATIENCE {
            return Some(complaint(name, block, &output, &printed));
        }
        std::thread::sleep(AGAIN);
    }
}

fn complaint(name: &str, block: &Block, output: &Output, printed: &[String]) -> String {
    let mut text = format!("{name}:{}: {}\n", block.line, block.command);
    if output.code != block.code {
        let _ = writeln!(text, "  exit code {}, expected {}", output.code, block.code);
    }
    for line in &block.expected {
        let _ = writeln!(text, "  - {line}");
    }
    for line in printed {
        let _ = writeln!(text, "  + {line}");
    }
    text
}

fn parse(text: &str, version: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (index, raw) in text.lines().enumerate() {
        let line = match raw.strip_prefix('@').and_then(|rest| rest.split_once(' ')) {
            Some((only, rest)) if applies(only, version) => rest,
            Some(_) => continue,
            None => raw,
        };
        if line.trim().is_empty() {
            open = false;
            continue;
        }
        if let Some(command) = line.strip_prefix("$ ").or_else(|| line.strip_prefix("~ ")) {
            let eventually = line.starts_with('~');
            blocks.push(Block {
                line: index + 1,
                command: command.to_owned(),
                eventually,
                ..Block::default()
            });
            open = true;
            continue;
        }
        if !open {
            assert!(line.starts_with('#'), "line {}: neither command nor comment: {line}", index + 1);
            continue;
        }
        let block = blocks.last_mut().expect("a block is open");
        if let Some(code) = line.strip_prefix("? ") {
            block.code = code.trim().parse().expect("an exit code");
        } else if let Some(input) = line.strip_prefix('<') {
            block.input += input.strip_prefix(' ').unwrap_or(input);
            block.input.push('\n');
        } else {
            block.expected.extend(normal(line));
        }
    }
    blocks
}

fn applies(only: &str, version: &str) -> bool {
    match only.strip_prefix('!') {
        Some(other) => other != version,
        None => only == version,
    }
}

/// Lines with single blanks and without times.
fn normal(text: &str) -> Vec<String> {
    let squeezed = text.lines().map(|line| {
        let words = line.split_whitespace().map(|word| if is_age(word) { "5s" } else { word });
        words.collect::<Vec<_>>().join(" ")
    });
    squeezed.filter(|line| !line.is_empty()).collect()
}

/// `7s`, `2m30s`, `4d3h`: as tables show how old something is.
fn is_age(word: &str) -> bool {
    let units = word.chars().filter(|c| "smhdy".contains(*c)).count();
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(['s', 'm', 'h', 'd', 'y'])
        && (1..=2).contains(&units)
        && word.chars().all(|c| c.is_ascii_digit() || "smhdy".contains(c))
}

fn lines_match(expected: &[String], printed: &[String]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((any, rest)) if any == "..." => {
            (0..=printed.len()).any(|skipped| lines_match(rest, &printed[skipped..]))
        }
        Some((line, rest)) => printed
            .split_first()
            .is_some_and(|(found, more)| line_matches(line, found) && lines_match(rest, more)),
    }
}

/// `[..]` in `pattern` stands for anything.
fn line_matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split("[..]");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(expected: &str, printed: &str) -> bool {
        lines_match(&normal(expected), &normal(printed))
    }

    #[test]
    fn lines_must_be_the_same_but_for_blanks_and_ages() {
        assert!(matches("NAME  AGE\na 5s", "NAME    AGE\n\na       2m30s\n"));
        assert!(!matches("a 5s", "a <unknown>"));
        assert!(!matches("a", "a\nb"));
        assert!(!matches("a\nb", "a"));
    }

    #[test]
    fn wildcards_stand_for_anything_and_no_more() {
        assert!(matches("pod/[..] created", "pod/web-x2f created"));
        assert!(!matches("pod/[..] created", "pod/web deleted"));
        assert!(matches("a\n...\nz", "a\nb\nc\nz") && matches("...", ""));
        assert!(!matches("a\n...\nz", "a\nb\nc"));
        assert!(line_matches("[..]a[..]b", "xxaxxb") && !line_matches("[..]a[..]b", "xxbxxa"));
    }

    #[test]
    fn blocks_have_input_code_and_version() {
        let text = "# c\n$ cat\n< a\n? 3\n@1.37 new\n@!1.37 old\n\n~ date\nx\n";
        let blocks = parse(text, "1.37");
        assert_eq!((blocks[0].input.as_str(), blocks[0].code), ("a\n", 3));
        assert_eq!(blocks[0].expected, ["new"]);
        assert!(blocks[1].eventually);
        assert_eq!(parse(text, "1.32")[0].expected, ["old"]);
    }
}
