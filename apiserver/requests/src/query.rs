//! The parameters of a request's query, read once and by one rule.
//!
//! The rule is Go's (`net/url.ParseQuery`), because aggregated servers read the same text with it: pairs stand between
//! `&`, `+` is a space, and a pair with a `;` or a broken escape is none. Of several parameters of one name the first
//! counts where one value is wanted.

use super::go;
use coracle_api::ApiError;
use percent_encoding::percent_decode;

/// The pairs of a query, decoded, in the order in which they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// All names and values, one behind the other.
    text: String,
    pairs: Vec<Pair>,
    unreadable: bool,
}

/// Where a name and its value stand in the text: the value begins where the name ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    name: usize,
    value: usize,
    end: usize,
}

impl Query {
    pub fn new(query: Option<&str>) -> Self {
        let mut read = Self::default();
        let Some(query) = query.filter(|query| !query.is_empty()) else { return read };
        read.text.reserve_exact(query.len());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let start = read.text.len();
            if read.push(pair).is_none() {
                read.text.truncate(start);
                read.unreadable = true;
            }
        }
        read
    }

    /// `None` for a pair that cannot be read.
    fn push(&mut self, pair: &str) -> Option<()> {
        if pair.contains(';') {
            return None;
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let at = self.text.len();
        decode_into(&mut self.text, name)?;
        let middle = self.text.len();
        decode_into(&mut self.text, value)?;
        self.pairs.push(Pair { name: at, value: middle, end: self.text.len() });
        Some(())
    }

    /// 400 for a query of which a part cannot be read, and so is not in effect: a selector that is dropped in silence
    /// would make a request one about everything.
    pub fn check_readable(&self) -> Result<(), ApiError> {
        if !self.unreadable {
            return Ok(());
        }
        Err(ApiError::bad_request(
            "the query has a parameter with a semicolon, a broken escape or no UTF-8 in it",
        ))
    }

    /// All pairs as name and value.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|pair| (&self.text[pair.name..pair.value], &self.text[pair.value..pair.end]))
    }

    /// The first value of a parameter, empty or not.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs().filter(move |(key, _)| *key == name).map(|(_, value)| value)
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        self.pairs().filter(|(key, _)| *key == name).map(|(_, value)| value).collect()
    }

    /// Anything but `false` and `0` counts as true, no value too, as in upstream's conversion.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|v| v != "0" && !v.eq_ignore_ascii_case("false"))
    }

    pub fn integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        self.get(name).map(|text| go::parse_int(text).map_err(ApiError::bad_request)).transpose()
    }

    /// Whether a write is asked to change nothing: `dryRun` is given, and never as anything but `All`.
    pub fn is_dry_run(&self) -> bool {
        let mut asked = self.values("dryRun").peekable();
        asked.peek().is_some() && asked.all(|value| value == "All")
    }
}

/// `None`, with a part written, where an escape is broken or the bytes are no UTF-8.
fn decode_into(text: &mut String, raw: &str) -> Option<()> {
    if !has_whole_escapes(raw) {
        return None;
    }
    for (i, words) in raw.split('+').enumerate() {
        if i > 0 {
            text.push(' ');
        }
        text.push_str(&percent_decode(words.as_bytes()).decode_utf8().ok()?);
    }
    Some(())
}

/// Whether each `%` has two hexadecimal digits behind it.
pub fn has_whole_escapes(raw: &str) -> bool {
    let digit = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = raw.as_bytes();
    let mut escapes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    escapes.all(|(at, _)| digit(bytes.get(at + 1)) && digit(bytes.get(at + 2)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(query: &str) -> Vec<(String, String)> {
        Query::new(Some(query)).pairs().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn pairs_as_go_reads_them() {
        for (query, expected) in [
            ("", vec![]),
            ("&&", vec![]),
            ("=", vec![pair("", "")]),
            ("a", vec![pair("a", "")]),
            ("a=&a=b", vec![pair("a", ""), pair("a", "b")]),
            ("a=b=c", vec![pair("a", "b=c")]),
            ("%61=%C3%A9+%2B", vec![pair("a", "é +")]),
            ("a=%26&b=%3D", vec![pair("a", "&"), pair("b", "=")]),
        ] {
            assert_eq!(pairs(query), expected, "{query}");
            assert!(Query::new(Some(query)).check_readable().is_ok(), "{query}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_there_and_refused() {
        for unreadable in ["a=1;b=2", "a;b", "a=%zz", "a=%4", "%=a", "a=%ff"] {
            assert_eq!(
                pairs(&format!("x=1&{unreadable}&y=2")),
                [pair("x", "1"), pair("y", "2")],
                "{unreadable}"
            );
            assert_eq!(Query::new(Some(unreadable)).check_readable().unwrap_err().code, 400, "{unreadable}");
        }
    }

    #[test]
    fn flags() {
        for (query, expected) in [
            ("watch", true),
            ("watch=maybe", true),
            ("watch=False", false),
            ("watch=0", false),
            ("watch=1", true),
            ("watch=0&watch=1", false),
        ] {
            assert_eq!(Query::new(Some(query)).flag("watch"), Some(expected), "{query}");
        }
        assert_eq!(Query::new(None).flag("watch"), None);
    }

    #[test]
    fn dry_runs() {
        for (query, expected) in [
            ("dryRun=All", true),
            ("dryRun=All&dryRun=All", true),
            ("dryRun=%41ll", true),
            ("dryRun=", false),
            ("dryRun=All&dryRun=", false),
            ("x=dryRun=All", false),
            ("", false),
        ] {
            assert_eq!(Query::new(Some(query)).is_dry_run(), expected, "{query}");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(written in prop::collection::vec((".{0,6}", ".{0,6}"), 0..5)) {
            let mut text = form_urlencoded::Serializer::new(String::new());
            text.extend_pairs(&written);
            let query = Query::new(Some(&text.finish()));
            prop_assert!(query.check_readable().is_ok());
            prop_assert_eq!(query.pairs().collect::<Vec<_>>(),
                written.iter().map(|(name, value)| (&**name, &**value)).collect::<Vec<_>>());
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let query = Query::new(Some(&text));
            let _ = (query.get("a"), query.check_readable().is_ok());
        }
    }
}
