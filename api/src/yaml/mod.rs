//! YAML that clients send, as upstream's API server reads it: YAML 1.1 by the parser that `sigs.k8s.io/yaml` uses, made JSON.
//! Only the first document of a text counts.

mod error;
mod go;
mod key;
mod scalar;
mod text;
mod tree;
mod value;

pub use error::YamlError;

use crate::decode;
use serde_json::Value;

/// As deep as JSON may be ([`decode::parse`]); upstream's own limit is 10,000.
const MAX_DEPTH: usize = 127;

/// Nodes that aliases may stand for, all together. Each takes about a hundred bytes while the document is read, so this is
/// some 10 MB; upstream allows about 400,000 of a small document.
const MAX_ALIASED_NODES: usize = 100_000;

/// Text that aliases may stand for, all together: as much as a body may have, which is 3 MiB.
const MAX_ALIASED_BYTES: usize = 3 << 20;

/// A document that was read.
#[derive(Debug, PartialEq)]
pub struct Document {
    /// Null if there was none.
    pub value: Value,
    /// Keys that are given twice, of which the last one counts: `line 8: key "k" already set in map`.
    pub repeated: Vec<String>,
}

impl Document {
    /// What upstream says of the keys where they are a mistake.
    pub fn strict_error(repeated: &[String]) -> Option<String> {
        (!repeated.is_empty()).then(|| format!("yaml: unmarshal errors:\n  {}", repeated.join("\n  ")))
    }
}

/// Reads the first document of a text.
///
/// # Errors
/// What is wrong with it; a document that would be much larger once its aliases are replaced is refused while it is read.
pub fn document(body: &[u8]) -> Result<Document, YamlError> {
    // What programs send is mostly JSON, which is YAML too and read many times quicker. Its mistakes are told as YAML's.
    if body.trim_ascii_start().first() == Some(&b'{')
        && let Ok((mut value, twice)) = decode::parse(body)
        && twice.is_empty()
    {
        value::whole_numbers(&mut value);
        return Ok(Document { value, repeated: Vec::new() });
    }
    let text = text::text(body)?;
    let nodes = tree::parse(&text)?;
    if nodes.is_empty() {
        return Ok(Document { value: Value::Null, repeated: Vec::new() });
    }
    let mut reader = value::Reader::new(&nodes);
    let value = reader.value(0)?;
    Ok(Document { value, repeated: reader.repeated })
}

#[cfg(test)]
mod tests;
