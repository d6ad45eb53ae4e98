//! The descriptions of types and fields.
//!
//! They are k8s-openapi's, gathered and deflated by the build script; the schema facts hold none. Inflated they take
//! about 1.5 MB, so whoever loads them lets them go as soon as a document is made.

use std::io::Read;

static DEFLATED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/prose"));

/// The descriptions of all built-in types.
pub struct Prose {
    text: String,
}

impl Prose {
    /// Inflates them.
    pub fn load() -> Self {
        let mut text = String::new();
        flate2::read::DeflateDecoder::new(DEFLATED)
            .read_to_string(&mut text)
            .expect("the build script wrote it");
        Self { text }
    }

    /// Of the type with this full name, such as `io.k8s.api.core.v1.PodSpec`.
    pub fn of_type(&self, name: &str) -> Option<String> {
        self.look_up(name)
    }

    pub fn of_field(&self, name: &str, field: &str) -> Option<String> {
        self.look_up(&format!("{name} {field}"))
    }

    /// The lines are sorted, so halving finds one.
    fn look_up(&self, key: &str) -> Option<String> {
        let (mut low, mut high) = (0, self.text.len());
        while low < high {
            let (start, end) = self.line_around(low + (high - low) / 2);
            let (found, description) = self.text[start..end].split_once('\t')?;
            match found.cmp(key) {
                std::cmp::Ordering::Equal => return Some(description.replace('\u{1}', "\n")),
                std::cmp::Ordering::Less => low = end + 1,
                std::cmp::Ordering::Greater => high = start,
            }
        }
        None
    }

    /// Where the line that holds this byte begins and ends, its line break not included.
    fn line_around(&self, at: usize) -> (usize, usize) {
        let bytes = self.text.as_bytes();
        let start = bytes[..at].iter().rposition(|&b| b == b'\n').map_or(0, |p| p + 1);
        let end = bytes[at..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |p| at + p);
        (start, end)
    }
}
