//! The nodes of the first document of a text, in the order in which they stand.

use super::error::syntax;
use super::{MAX_DEPTH, YamlError};
use granit_parser::{Event, Options, Parser, ScalarStyle, Span, StrInput, Tag};
use std::borrow::Cow;

pub(super) struct Node<'t> {
    /// Counted from 1.
    pub line: usize,
    /// The node behind this one and all that is in it.
    pub end: usize,
    pub what: What<'t>,
}

pub(super) enum What<'t> {
    Scalar(Scalar<'t>),
    Sequence,
    /// Keys and values by turns.
    Mapping,
    Alias {
        of: usize,
        name: &'t str,
    },
}

pub(super) struct Scalar<'t> {
    pub text: Cow<'t, str>,
    /// Without quotes and no block: what it stands for is to be found out.
    pub is_plain: bool,
    /// In full: `tag:yaml.org,2002:str`.
    pub tag: Option<String>,
}

/// Empty if the text has no document. What stands behind the first document is not looked at, as upstream has it.
pub(super) fn parse(text: &str) -> Result<Vec<Node<'_>>, YamlError> {
    let mut builder = Builder { text, nodes: Vec::new(), open: Vec::new(), anchors: Vec::new() };
    for event in Parser::<StrInput<'_>>::new_from_str_with_options(text, options()) {
        let (event, span) = event.map_err(|error| syntax(&error, text))?;
        if matches!(event, Event::DocumentEnd) {
            break;
        }
        builder.take(event, &span)?;
    }
    Ok(builder.nodes)
}

fn options() -> Options {
    let mut options = granit_parser::options! {
        // To say which one.
        emit_unresolved_aliases: true,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    options.set_emit_comments(false);
    options
}

struct Builder<'t> {
    text: &'t str,
    nodes: Vec<Node<'t>>,
    /// Sequences and mappings that have begun and not ended.
    open: Vec<usize>,
    /// By the parser's number of the anchor, less one.
    anchors: Vec<usize>,
}

impl<'t> Builder<'t> {
    fn take(&mut self, event: Event<'t>, span: &Span) -> Result<(), YamlError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let text = without_added_break(self.text, text, style, span);
                let is_plain = style == ScalarStyle::Plain;
                let tag = tag.map(|tag| in_full(&tag));
                self.add(anchor, span, What::Scalar(Scalar { text, is_plain, tag }));
            }
            Event::SequenceStart(_, anchor, _) => self.begin(anchor, span, What::Sequence)?,
            Event::MappingStart(_, anchor, _) => self.begin(anchor, span, What::Mapping)?,
            Event::SequenceEnd | Event::MappingEnd => {
                let end = self.nodes.len();
                if let Some(node) = self.open.pop().and_then(|at| self.nodes.get_mut(at)) {
                    node.end = end;
                }
            }
            Event::Alias(anchor) => {
                let name = self.name(span);
                let of = anchor.checked_sub(1).and_then(|n| self.anchors.get(n).copied());
                let of = of.ok_or_else(|| YamlError::UnknownAnchor(name.to_owned()))?;
                self.add(0, span, What::Alias { of, name });
            }
            // What is known here is YAML 1.1.
            Event::DocumentStart(_, Some(version)) if (version.major, version.minor) != (1, 1) => {
                let problem = "found incompatible YAML document".to_owned();
                return Err(YamlError::Syntax { line: None, problem });
            }
            Event::UnresolvedAlias(name) => return Err(YamlError::UnknownAnchor(name.into_owned())),
            _ => {}
        }
        Ok(())
    }

    /// Of an alias.
    fn name(&self, span: &Span) -> &'t str {
        span.slice(self.text).unwrap_or_default().trim_start_matches('*')
    }

    fn add(&mut self, anchor: usize, span: &Span, what: What<'t>) {
        let at = self.nodes.len();
        if anchor > 0 {
            // Numbers go up by one; a gap would only be an anchor without a node.
            self.anchors.resize(anchor, at);
            self.anchors[anchor - 1] = at;
        }
        self.nodes.push(Node { line: span.start.line(), end: at + 1, what });
    }

    fn begin(&mut self, anchor: usize, span: &Span, what: What<'t>) -> Result<(), YamlError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(YamlError::Depth(MAX_DEPTH));
        }
        self.open.push(self.nodes.len());
        self.add(anchor, span, what);
        Ok(())
    }
}

fn in_full(tag: &Tag) -> String {
    format!("{}{}", tag.handle(), tag.suffix())
}

/// A block text that ends with the whole text has no line break there which the text has not.
fn without_added_break<'t>(whole: &str, text: Cow<'t, str>, style: ScalarStyle, span: &Span) -> Cow<'t, str> {
    let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
    let is_last = || span.byte_range().is_some_and(|range| range.end >= whole.len());
    let Some(shorter) = text.strip_suffix('\n').filter(|_| is_block && is_last()) else { return text };
    // Else what follows its last line is only spaces.
    if whole.ends_with('\n') || shorter.is_empty() || whole.chars().next_back() != shorter.chars().next_back()
    {
        return text;
    }
    Cow::Owned(shorter.to_owned())
}
