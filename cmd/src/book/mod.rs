//! `coracle help`: the pages of `docs/` for owners of a box, on the box, without a network. `docs/configuration.md` is made
//! here, of the flags.

pub mod settings;

use crate::args::{Cli, HelpArgs};
use crate::process::fail;
use clap::CommandFactory;
use std::io::Write;
use std::process::ExitCode;

/// A page, in the order in which the book is read.
struct Page {
    topic: &'static str,
    title: &'static str,
    text: &'static str,
}

/// What only who builds or compares needs (architecture, cel) stays in the repository.
static PAGES: [Page; 14] = [
    page("install", "Installing", include_str!("../../../docs/install.md")),
    page("first-hour", "The first hour", include_str!("../../../docs/first-hour.md")),
    page("configuration", "Every setting", include_str!("../../../docs/configuration.md")),
    page("operating", "Operating for years", include_str!("../../../docs/operating.md")),
    page("recovery", "When something is lost", include_str!("../../../docs/recovery.md")),
    page("servers", "Several servers", include_str!("../../../docs/servers.md")),
    page("scaling", "How far it carries", include_str!("../../../docs/scaling.md")),
    page("ci", "In a CI job", include_str!("../../../docs/ci.md")),
    page("dns", "The cluster's DNS", include_str!("../../../docs/dns.md")),
    page("load-balancers", "Services of type LoadBalancer", include_str!("../../../docs/load-balancers.md")),
    page("parts", "Swapped parts", include_str!("../../../docs/parts.md")),
    page("security", "Who is kept from what", include_str!("../../../docs/security.md")),
    page("limits", "Limits", include_str!("../../../docs/limits.md")),
    page("differences", "Differences to upstream", include_str!("../../../docs/differences.md")),
];

const fn page(topic: &'static str, title: &'static str, text: &'static str) -> Page {
    Page { topic, title, text }
}

/// Prints a page, or a command's help as `--help` does; without a topic, which there are.
pub fn command(args: &HelpArgs) -> ExitCode {
    let text = match args.topic.as_slice() {
        [] => contents(),
        [topic] if topic == "settings" => settings::page(),
        [topic] if of(topic).is_some() => of(topic).map_or("", |page| page.text).to_owned(),
        words => match of_command(words) {
            Some(text) => text,
            None => {
                return fail(&format!("help: there is no topic \"{}\"\n{}", words.join(" "), contents()));
            }
        },
    };
    // Somebody may read only its beginning.
    let written = std::io::stdout().write_all(text.as_bytes());
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn of(topic: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.topic == topic)
}

fn of_command(words: &[String]) -> Option<String> {
    let mut found = Cli::command();
    found.build();
    let mut found = &mut found;
    for word in words {
        found = found.find_subcommand_mut(word)?;
    }
    Some(found.render_long_help().to_string())
}

fn contents() -> String {
    let mut text = String::from("coracle help TOPIC prints a page of the book:\n\n");
    for page in &PAGES {
        text += &format!("  {:16}{}\n", page.topic, page.title);
    }
    text += "\ncoracle help COMMAND prints a command's flags, coracle --help lists the commands.\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    /// The book's front page names every page, in the same order.
    #[test]
    fn the_front_page_names_every_page_in_order() {
        let front = include_str!("../../../docs/README.md");
        let mut from = 0;
        for page in &PAGES {
            let link = format!("]({}.md)", page.topic);
            let at =
                front[from..].find(&link).unwrap_or_else(|| panic!("{link} is missing, or not in order"));
            from += at;
        }
    }

    #[test]
    fn every_page_has_a_title_and_links_that_lead_somewhere() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        for page in &PAGES {
            assert!(page.text.starts_with("# "), "{}", page.topic);
            for link in page.text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let path = link.split('#').next().unwrap_or_default();
                let local = !path.is_empty() && !path.contains("://");
                assert!(!local || docs.join(path).exists(), "{}: {link} leads nowhere", page.topic);
            }
        }
    }

    /// Lines of fenced blocks that begin with the program's name, without what a shell does with them.
    fn commands(text: &str) -> Vec<String> {
        let mut inside = false;
        let mut found: Vec<String> = Vec::new();
        let mut goes_on = false;
        for line in text.lines() {
            if line.starts_with("```") {
                inside = !inside;
                continue;
            }
            if goes_on && let Some(last) = found.last_mut() {
                last.push(' ');
                last.push_str(line.trim_end_matches('\\').trim());
                goes_on = line.ends_with('\\');
            } else if inside && line.starts_with("coracle ") {
                found.push(line.trim_end_matches('\\').trim().to_owned());
                goes_on = line.ends_with('\\');
            }
        }
        found
    }

    /// As a shell would, as far as the book needs one.
    fn words(line: &str) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        for (place, part) in line.split('\'').enumerate() {
            if place % 2 == 1 {
                words.push(part.to_owned());
                continue;
            }
            let plain = part.split_whitespace();
            let ends = |word: &&str| matches!(*word, "|" | "#" | ">" | "&&") || word.starts_with('#');
            for word in plain {
                if ends(&word) {
                    return words;
                }
                words.push(word.to_owned());
            }
        }
        words
    }

    #[test]
    fn commands_of_the_book_are_there() {
        let mut count = 0;
        for page in &PAGES {
            for line in commands(page.text) {
                if let Err(error) = Cli::try_parse_from(words(&line)) {
                    // What only prints is a good command, too.
                    assert!(!error.use_stderr(), "{}: {line}: {error}", page.topic);
                }
                count += 1;
            }
        }
        assert!(count > 50, "{count} commands");
    }

    #[test]
    fn a_command_is_a_topic_too() {
        let text = of_command(&["cert".to_owned(), "rotate-ca".to_owned()]).expect("a command");
        assert!(text.contains("--issue"), "{text}");
        assert!(of_command(&["nonsense".to_owned()]).is_none());
        assert!(contents().contains("first-hour") && of("security").is_some());
    }
}
