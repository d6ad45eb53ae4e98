//! The descriptions of types and fields.
//!
//! They are k8s-openapi's, gathered and deflated by the build script; the schema facts hold none. Inflated they take
//! about 1.5 MB, so whoever loads them lets them go as soon as a document is made.

use coracle_api::catalogue::catalogue;
use std::io::Read;

static DEFLATED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/prose"));

/// A type whose `apiVersion`, `kind` and `metadata` are described in the words that all objects share.
pub const COMMON: &str = "io.k8s.api.policy.v1.PodDisruptionBudget";

/// What k8s-openapi does not say: type, field or nothing, description.
const OWN: [(&str, &str, &str); 8] = [
    (WATCH_EVENT, "", "WatchEvent is one of the events that a watch sends."),
    (
        WATCH_EVENT,
        "object",
        "The object as it is after the event, or as it was before it was deleted. Of ERROR it is a Status, of BOOKMARK an \
         object with a resource version alone.",
    ),
    (INFO, "major", "The first number of the version."),
    (INFO, "minor", "The second number of the version."),
    (INFO, "emulationMajor", "The first number of the version that the server behaves like."),
    (INFO, "emulationMinor", "The second number of the version that the server behaves like."),
    (INFO, "minCompatibilityMajor", "The first number of the oldest version that can share the store."),
    (INFO, "minCompatibilityMinor", "The second number of the oldest version that can share the store."),
];
const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";
const INFO: &str = "io.k8s.apimachinery.pkg.version.Info";

fn own(name: &str, field: &str) -> Option<String> {
    OWN.iter().find(|own| (own.0, own.1) == (name, field)).map(|own| own.2.to_owned())
}

/// Of the name of a type of lists: the kind of the objects in them.
fn listed(name: &str) -> Option<&str> {
    name.rsplit('.').next()?.strip_suffix("List").filter(|kind| !kind.is_empty())
}

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
        let of_list = || listed(name).map(|kind| format!("{kind}List is a list of objects of kind {kind}."));
        self.look_up(name).or_else(|| own(name, "")).or_else(of_list)
    }

    pub fn of_field(&self, name: &str, field: &str) -> Option<String> {
        let found = self.look_up(&format!("{name} {field}"));
        found.or_else(|| own(name, field)).or_else(|| self.of_list(listed(name)?, field))
    }

    /// Of a field that all lists have; `kind` is that of the objects in it.
    fn of_list(&self, kind: &str, field: &str) -> Option<String> {
        match field {
            "apiVersion" | "kind" => self.look_up(&format!("{COMMON} {field}")),
            "metadata" => {
                Some("What the list as a whole says of itself, such as its resource version.".into())
            }
            "items" => Some(match catalogue().iter().find(|resource| *resource.kind == *kind) {
                Some(resource) => format!("List of {}.", resource.plural),
                None => format!("The objects of kind {kind}."),
            }),
            _ => None,
        }
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
