//! YAML as a request body: read as upstream's parser reads it, and within what a body may cost.

use super::decode::MAX_BODY_BYTES;
use coracle_api::decode;
use serde_json::Value;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{DuplicateKeyPolicy, Error, Options};

/// Nodes that aliases may stand for, all together. Each takes about a hundred bytes while the document is read, so this is
/// some 10 MB; upstream allows about 400,000 of a small document.
const ALIASED_NODES: usize = 100_000;

/// Upstream's words for a document that is small only because it repeats itself.
const TOO_MANY_ALIASES: &str = "yaml: document contains excessive aliasing";

/// Any YAML document, and which of its keys are given twice, in the words of upstream's parser. Of duplicate keys the
/// last one counts.
///
/// # Errors
/// What is wrong with it; a document that would be larger than a body may be once its aliases are replaced is refused while it
/// is read.
pub(crate) fn document(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    let text = std::str::from_utf8(body).map_err(|e| e.to_string())?;
    // What programs send is mostly JSON, which is YAML too and read many times quicker. Its mistakes are told as YAML's.
    if body.trim_ascii_start().first() == Some(&b'{')
        && let Ok((value, twice)) = decode::parse(body)
        && twice.is_empty()
    {
        return Ok((value, twice));
    }
    let once = match read(text, DuplicateKeyPolicy::Error) {
        Ok(value) => return Ok((value, Vec::new())),
        Err(error) => error,
    };
    let Error::DuplicateMappingKey { key, .. } = original(&once) else {
        return Err(told(&once));
    };
    let line = once.location().map_or(0, |at| at.line());
    let key = key.as_deref().unwrap_or_default();
    let problem = format!("yaml: unmarshal errors:\n  line {line}: key {key:?} already set in map");
    let value = read(text, DuplicateKeyPolicy::LastWins).map_err(|e| told(&e))?;
    Ok((value, vec![problem]))
}

fn read(text: &str, duplicate_keys: DuplicateKeyPolicy) -> Result<Value, Error> {
    let options: Options = serde_saphyr::options! {
        duplicate_keys: duplicate_keys,
        // `0755` is what a file's mode is, as in YAML 1.1, which upstream reads.
        legacy_octal_numbers: true,
        // Nobody asks for them, and a long run of them would be refused.
        emit_comments: false,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: ALIASED_NODES },
        budget: serde_saphyr::budget! {
            // The text itself has no more than its own size, so that whatever is beyond stands there by aliases.
            max_total_scalar_bytes: MAX_BODY_BYTES,
            max_recorded_anchor_events: ALIASED_NODES,
            max_recorded_anchor_bytes: MAX_BODY_BYTES,
            // One anchor may have many aliases, as upstream has it.
            enforce_alias_anchor_ratio: false,
        },
    };
    serde_saphyr::from_str_with_options(text, options)
}

/// Without what was put around it to say where it happened.
fn original(mut error: &Error) -> &Error {
    while let Error::AliasError { error: inner, .. } | Error::WithSnippet { error: inner, .. } = error {
        error = inner;
    }
    error
}

fn told(error: &Error) -> String {
    let aliases = match original(error) {
        Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => true,
        Error::Budget { breach, .. } => matches!(
            breach,
            BudgetBreach::Aliases { .. }
                | BudgetBreach::Anchors { .. }
                | BudgetBreach::ScalarBytes { .. }
                | BudgetBreach::RecordedAnchorEvents { .. }
                | BudgetBreach::RecordedAnchorBytes { .. }
        ),
        _ => false,
    };
    if aliases { TOO_MANY_ALIASES.to_owned() } else { error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    /// Ten of the anchor before, so many times over.
    fn laughs(levels: usize) -> String {
        let mut text = "l0: &l0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
        for level in 1..=levels {
            let before = format!("*l{}", level - 1);
            writeln!(text, "l{level}: &l{level} [{}]", [before.as_str(); 10].join(", ")).unwrap();
        }
        text
    }

    /// One long scalar, and so many aliases of it.
    fn copies(bytes: usize, aliases: usize) -> String {
        let list = "- *a\n".repeat(aliases);
        format!("a: &a {}\nlist:\n{list}", "x".repeat(bytes))
    }

    #[test]
    fn bombs_are_refused_in_upstreams_words() {
        for bomb in [laughs(9), laughs(6), copies(1 << 20, 50), copies(60_000, 1_000), copies(3, 90_000)] {
            assert_eq!(document(bomb.as_bytes()).unwrap_err(), TOO_MANY_ALIASES, "{} bytes", bomb.len());
        }
    }

    #[test]
    fn aliases_within_reason_are_replaced() {
        let (value, twice) = document(copies(1000, 500).as_bytes()).unwrap();
        assert_eq!(value["list"].as_array().unwrap().len(), 500);
        assert_eq!((value["list"][499].as_str().unwrap().len(), twice.len()), (1000, 0));
        assert_eq!(document(laughs(2).as_bytes()).unwrap().0["l2"][9][9][9], "lol");
        let merged = "base: &b {a: 1}\nmore: {<<: *b, c: 2}\n";
        assert_eq!(document(merged.as_bytes()).unwrap().0["more"]["a"], 1);
    }

    #[test]
    fn numbers_are_those_of_yaml_1_1() {
        for (text, wanted) in [
            ("0400", 256),
            ("0755", 493),
            ("-010", -8),
            ("0o14", 12),
            ("0x1F", 31),
            ("0b11", 3),
            ("1_000", 1000),
        ] {
            let (value, _) = document(format!("mode: {text}\n").as_bytes()).unwrap();
            assert_eq!(value["mode"], wanted, "{text}");
        }
        assert_eq!(document(b"mode: '0400'\n").unwrap().0["mode"], "0400");
    }

    #[test]
    fn comments_may_be_as_many_as_they_like() {
        let text = format!("{}a: 1\n{}", "# a line\n".repeat(5_000), "  # another\n".repeat(5_000));
        assert_eq!(document(text.as_bytes()).unwrap().0["a"], 1);
    }

    #[test]
    fn what_is_deep_is_refused() {
        for deep in ["[".repeat(100_000), "- ".repeat(100_000), "{\"a\":".repeat(100_000)] {
            assert!(document(deep.as_bytes()).is_err());
        }
    }
}
