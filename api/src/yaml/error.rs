//! What is wrong with a document, in the words of upstream's parser.

use granit_parser::{ErrorKind, ScanError};

/// Why a text is no YAML that can become JSON.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum YamlError {
    /// `line` counts as upstream's parser does, which names none in the first one.
    #[error("yaml: {}{problem}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
    Syntax { line: Option<usize>, problem: String },
    #[error("yaml: {0}")]
    Encoding(&'static str),
    #[error("yaml: unknown anchor '{0}' referenced")]
    UnknownAnchor(String),
    #[error("yaml: anchor '{0}' value contains itself")]
    ContainsItself(String),
    #[error("yaml: map merge requires map or sequence of maps as the value")]
    Merge,
    #[error("yaml: cannot decode {found} `{text}` as a {tag}")]
    Tag { found: &'static str, text: String, tag: &'static str },
    #[error("yaml: !!binary value contains invalid base64 data")]
    Base64,
    #[error("yaml: invalid map key: {0}")]
    Key(String),
    #[error("yaml: document contains excessive aliasing")]
    Aliases,
    #[error("yaml: exceeded max depth of {0}")]
    Depth(usize),
    #[error("unsupported map key of type: {kind}, key: {key}, value: {value}")]
    KeyType { kind: &'static str, key: String, value: String },
    #[error("json: unsupported value: {0}")]
    NotFinite(&'static str),
}

/// Which of upstream's two stages finds a mistake: the parser counts lines from 0.
#[derive(Clone, Copy)]
enum Stage {
    Scanner,
    Parser,
}

/// `text` is the whole one.
pub(super) fn syntax(error: &ScanError, text: &str) -> YamlError {
    if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
        return YamlError::Depth(super::MAX_DEPTH);
    }
    let (stage, problem) = words(error.kind(), before(error, text));
    let own = error.kind().to_string();
    let problem = if problem.is_empty() { own.rsplit(", ").next().unwrap_or(&own) } else { problem };
    let line = line(stage, error, text);
    YamlError::Syntax { line, problem: problem.to_owned() }
}

/// None in the first one.
fn line(stage: Stage, error: &ScanError, text: &str) -> Option<usize> {
    let breaks = text.bytes().filter(|b| *b == b'\n').count();
    let at = error.marker().line();
    let counted_from_0 = match stage {
        Stage::Scanner if matches!(error.kind(), ErrorKind::UnclosedQuotedScalar) => breaks,
        // It is missed in the next line.
        Stage::Scanner
            if matches!(error.kind(), ErrorKind::SimpleKeyExpected | ErrorKind::TabAtBlockScalarStart) =>
        {
            at
        }
        // At its end, the text has a line break in any case.
        Stage::Parser if is_at_end(error.kind()) => breaks + usize::from(!text.ends_with('\n')),
        _ => at.saturating_sub(1),
    };
    match stage {
        _ if counted_from_0 == 0 => None,
        Stage::Scanner => Some(counted_from_0 + 1),
        Stage::Parser => Some(counted_from_0),
    }
}

/// The last character before the mistake that is no space; before the end, if the text ends too early.
fn before(error: &ScanError, text: &str) -> Option<char> {
    let end = if is_at_end(error.kind()) { text.len() } else { error.marker().byte_offset()? };
    text.get(..end)?.trim_end().chars().next_back()
}

fn is_at_end(kind: &ErrorKind) -> bool {
    use ErrorKind as K;
    matches!(
        kind,
        K::UnexpectedEof
            | K::UnexpectedEofFlowSequence
            | K::UnexpectedEofFlowMapping
            | K::UnclosedFlowCollection { .. }
    )
}

/// Empty for what upstream has no words for, or the same.
fn words(kind: &ErrorKind, before: Option<char>) -> (Stage, &'static str) {
    use ErrorKind as K;
    use Stage::{Parser, Scanner};
    match kind {
        kind if is_at_end(kind) && matches!(before, Some(',' | '[' | '{' | ':')) => {
            (Parser, "did not find expected node content")
        }
        K::MisplacedFlowCollectionEnd if matches!(before, Some(':' | '-')) => {
            (Parser, "did not find expected node content")
        }
        K::ExpectedNodeContent | K::UnexpectedEof => (Parser, "did not find expected node content"),
        K::ExpectedBlockMappingKey
        | K::UnexpectedEofBlockMapping
        | K::InvalidTrailingSingleQuotedScalar
        | K::InvalidTrailingDoubleQuotedScalar
        | K::MisplacedFlowCollectionEnd => (Parser, "did not find expected key"),
        K::ExpectedBlockSequenceEntry | K::UnexpectedEofBlockSequence => {
            (Parser, "did not find expected '-' indicator")
        }
        K::ExpectedFlowMappingSeparator
        | K::UnexpectedEofFlowMapping
        | K::UnexpectedEofImplicitFlowMapping
        | K::UnclosedFlowCollection { open: '{' }
        | K::MismatchedFlowCollectionEnd { open: '{', .. } => (Parser, "did not find expected ',' or '}'"),
        K::ExpectedFlowSequenceSeparator
        | K::UnexpectedEofFlowSequence
        | K::UnclosedFlowCollection { .. }
        | K::MismatchedFlowCollectionEnd { .. } => (Parser, "did not find expected ',' or ']'"),
        K::ExpectedDocumentStart => (Parser, "did not find expected <document start>"),
        K::UndeclaredTagHandle => (Parser, "found undefined tag handle"),
        K::DuplicateVersionDirective => (Parser, "found duplicate %YAML directive"),
        K::UnsupportedYamlMajorVersion => (Parser, "found incompatible YAML document"),
        K::DuplicateTagDirective => (Parser, "found duplicate %TAG directive"),
        kind => (Scanner, scanner_words(kind)),
    }
}

/// Of what is wrong with the text itself; empty for what upstream has no words for, or the same.
fn scanner_words(kind: &ErrorKind) -> &'static str {
    use ErrorKind as K;
    match kind {
        K::SimpleKeyExpected | K::InvalidSimpleKey => "could not find expected ':'",
        K::UnexpectedCharacter { .. } | K::TabNotAllowed | K::TabInBlockIndentation | K::TabInIndentation => {
            "found character that cannot start any token"
        }
        K::MappingValueNotAllowed | K::InvalidColonPlacement => {
            "mapping values are not allowed in this context"
        }
        K::MappingKeyNotAllowed => "mapping keys are not allowed in this context",
        K::BlockSequenceEntryNotAllowed | K::BlockEntryInFlowCollection => {
            "block sequence entries are not allowed in this context"
        }
        K::TabAtBlockScalarStart => "found a tab character where an indentation space is expected",
        K::UnclosedQuotedScalar => "found unexpected end of stream",
        K::DocumentIndicatorInQuotedScalar => "found unexpected document indicator",
        K::UnknownQuotedScalarEscape => "found unknown escape character",
        K::InvalidQuotedScalarHexEscape => "did not find expected hexdecimal number",
        K::InvalidUnicodeEscape
        | K::UnpairedLowSurrogate
        | K::MissingLowSurrogate
        | K::InvalidLowSurrogate
        | K::InvalidLowSurrogateHexEscape => "found invalid Unicode character escape code",
        K::MissingAnchorOrAliasName => "did not find expected alphabetic or numeric character",
        K::ZeroBlockScalarIndent => "found an indentation indicator equal to 0",
        K::InvalidBlockScalarHeader | K::InvalidDirectiveTerminator => {
            "did not find expected comment or line break"
        }
        _ => "",
    }
}
