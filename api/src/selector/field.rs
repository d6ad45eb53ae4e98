//! Selectors over a few fields of an object, from the query parameter `fieldSelector`.

use super::SelectorError;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    pub field: String,
    /// Unescaped.
    pub value: String,
    pub negated: bool,
}

/// A conjunction; the empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    pub requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let terms = split_unescaped(text).into_iter().filter(|term| !term.is_empty());
        let requirements = terms.map(|term| requirement(text, term)).collect::<Result<_, _>>()?;
        Ok(Self { requirements })
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// `field` gives an object's value, empty where it has none. Unknown names must have been refused with
    /// [`check_fields`](Self::check_fields) before.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|r| (field(&r.field).unwrap_or_default() == r.value) != r.negated)
    }

    /// Refuses the first field that is not among `known`, in upstream's words.
    pub fn check_fields(&self, known: &[&str]) -> Result<(), SelectorError> {
        match self.requirements.iter().find(|r| !known.contains(&r.field.as_str())) {
            Some(r) => Err(SelectorError(format!("field label not supported: {}", r.field))),
            None => Ok(()),
        }
    }

    /// The value that `field` must have, if the selector says so: lets a list of one name become a get.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.requirements.iter().find(|r| !r.negated && r.field == field).map(|r| r.value.as_str())
    }
}

/// At every comma that no backslash precedes.
fn split_unescaped(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (i, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(whole: &str, term: &str) -> Result<FieldRequirement, SelectorError> {
    let unclear = || SelectorError(format!("invalid selector: '{whole}'; can't understand '{term}'"));
    let at = term.find(['=', '!']).ok_or_else(unclear)?;
    let (field, rest) = term.split_at(at);
    let (negated, value) = match rest.strip_prefix("!=") {
        Some(value) => (true, value),
        None => (false, rest.strip_prefix("==").or(rest.strip_prefix('=')).ok_or_else(unclear)?),
    };
    Ok(FieldRequirement { field: field.to_owned(), value: unescape(value)?, negated })
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    let text = format!("invalid field selector: invalid escape sequence: {sequence}");
                    return Err(SelectorError(text));
                }
            },
            ',' | '=' => {
                let text = format!("invalid field selector: unescaped character in value: {c}");
                return Err(SelectorError(text));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

impl FromStr for FieldSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Self::parse(text)
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.requirements.iter().enumerate() {
            let value = r.value.replace('\\', r"\\").replace(',', r"\,").replace('=', r"\=");
            let operator = if r.negated { "!=" } else { "=" };
            write!(f, "{}{}{operator}{value}", if i == 0 { "" } else { "," }, r.field)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field<'a>(name: &str) -> Option<&'a str> {
        match name {
            "metadata.name" => Some("web"),
            "spec.nodeName" => Some(""),
            _ => None,
        }
    }

    #[test]
    fn matching() {
        for (text, expected) in [
            ("", true),
            ("metadata.name=web", true),
            ("metadata.name==web,spec.nodeName=", true),
            ("metadata.name!=web", false),
            ("spec.nodeName!=", false),
            ("metadata.name=a,b=c", false),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap().matches(field), expected, "{text:?}");
        }
        let selector = FieldSelector::parse("a!=x,metadata.name=web").unwrap();
        assert_eq!(selector.exact("metadata.name"), Some("web"));
        assert_eq!(selector.exact("a"), None);
    }

    #[test]
    fn refused() {
        for (text, words) in [
            ("foo", "invalid selector: 'foo'; can't understand 'foo'"),
            ("a=b=c", "invalid field selector: unescaped character in value: ="),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err().to_string(), words);
        }
        let error = FieldSelector::parse("spec.x=1").unwrap().check_fields(&["metadata.name"]).unwrap_err();
        assert_eq!(error.to_string(), "field label not supported: spec.x");
    }

    proptest! {
        #[test]
        fn printing_and_parsing_agree(name in "[a-z.]{1,8}", value in ".*", negated: bool) {
            let requirements = vec![FieldRequirement { field: name, value, negated }];
            let selector = FieldSelector { requirements };
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()).unwrap(), selector);
        }

        #[test]
        fn any_text_parses_or_fails(text in ".*") {
            let _ = FieldSelector::parse(&text);
        }
    }
}
