//! How much a client is warned of: headers end up in buffers that do not grow.

use std::borrow::Cow;

/// Upstream's limits in characters: when all warnings of an answer together are longer, each is cut, and when they are
/// still too long the rest is left out.
const ALL_CHARS: usize = 4 * 1024;
const ONE_CHARS: usize = 256;

/// The warnings that are sent, each once.
pub(super) fn limited(warnings: &[String]) -> Vec<Cow<'_, str>> {
    let mut distinct: Vec<&str> = Vec::with_capacity(warnings.len());
    for warning in warnings {
        if !warning.is_empty() && !distinct.contains(&warning.as_str()) {
            distinct.push(warning);
        }
    }
    let all: usize = distinct.iter().map(|warning| warning.chars().count()).sum();
    if all <= ALL_CHARS {
        return distinct.into_iter().map(Cow::Borrowed).collect();
    }
    let mut sent = 0;
    let mut cut = Vec::new();
    for warning in distinct {
        if sent >= ALL_CHARS {
            break;
        }
        let short: String = warning.chars().take(ONE_CHARS).collect();
        sent += short.chars().count();
        cut.push(Cow::Owned(short));
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ones_are_sent_whole_and_once() {
        let warnings = ["a".to_owned(), "b".repeat(4000), "a".to_owned(), String::new()];
        let sent = limited(&warnings);
        assert_eq!(sent.iter().map(|w| w.len()).collect::<Vec<_>>(), [1, 4000]);
    }

    #[test]
    fn long_ones_are_cut_and_then_left_out() {
        let warnings: Vec<String> = (0..100).map(|i| format!("{i:03}{}", "ä".repeat(300))).collect();
        let sent = limited(&warnings);
        assert_eq!(sent.len(), ALL_CHARS / ONE_CHARS);
        assert!(sent.iter().all(|warning| warning.chars().count() == ONE_CHARS));
    }
}
