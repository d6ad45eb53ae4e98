//! A store as lines of JSON, for people, scripts and other stores.
//!
//! ```text
//! {"format":"coracle-export/1","revision":N,"objects":M}
//! {"key":"pods./default/web","created":N,"modified":N,"value":{...}}       the value of one key, in the keys' order
//! {"key":"secrets./default/a","created":N,"modified":N,"sealed":"BASE64"}  where it is no JSON: encrypted at rest
//! {"sha256":"HEX"}                                                         of all bytes before this line
//! ```
//! `created` and `modified` are revisions: the object's `resourceVersion` is the latter, and stands nowhere else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_api::hex;
use coracle_apiserver::store::sled::Picture;
use coracle_apiserver::store::{KeyValue, Revision, Value as Stored};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use std::io::{self, BufRead, Write};
use std::sync::Arc;

const FORMAT: &str = "coracle-export/1";

#[derive(Deserialize, Serialize)]
struct Head {
    format: String,
    revision: u64,
    objects: u64,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: String,
    created: u64,
    modified: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<String>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct End {
    sha256: String,
}

/// Why an export cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LinesError {
    #[error("it is no export of coracle")]
    Foreign,
    #[error("a later version of coracle made it ({0}, this one knows {FORMAT})")]
    Newer(String),
    #[error("it is cut short")]
    Truncated,
    #[error("line {0}: {1}")]
    Line(usize, String),
    #[error("its checksum is another: it was changed, or damaged")]
    Checksum,
    #[error("it cannot be read")]
    Io(#[from] io::Error),
}

struct Summed<W> {
    out: W,
    sum: Sha256,
}

impl<W: Write> Summed<W> {
    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.sum.update(&text);
        self.out.write_all(&text)
    }
}

pub fn write(out: impl Write, picture: &Picture) -> io::Result<()> {
    let mut out = Summed { out, sum: Sha256::new() };
    let head = Head { format: FORMAT.to_owned(), revision: picture.revision().0, objects: picture.objects() };
    out.line(&head)?;
    for item in picture.items() {
        out.line(&line(&item))?;
    }
    let end = End { sha256: hex::text(&out.sum.clone().finalize()) };
    out.line(&end)?;
    out.out.flush()
}

fn line(item: &KeyValue) -> Line {
    let bytes = item.value.peek();
    let text = std::str::from_utf8(&bytes).ok().filter(|text| !text.contains('\n'));
    let value = text.and_then(|text| RawValue::from_string(text.to_owned()).ok());
    let sealed = value.is_none().then(|| STANDARD.encode(&bytes[..]));
    Line { key: item.key.to_string(), created: item.created.0, modified: item.modified.0, value, sealed }
}

/// All of it, when all of it is as it was written.
pub fn read(mut input: impl BufRead) -> Result<(Revision, Vec<KeyValue>), LinesError> {
    let (mut sum, mut text, mut number) = (Sha256::new(), String::new(), 0);
    let mut head: Option<Head> = None;
    let mut items: Vec<KeyValue> = Vec::new();
    loop {
        text.clear();
        number += 1;
        let read = input.read_line(&mut text);
        read.map_err(|error| if head.is_none() { LinesError::Foreign } else { error.into() })?;
        let Some(found) = &head else {
            let first: Head = serde_json::from_str(&text).map_err(|_| LinesError::Foreign)?;
            if first.format != FORMAT {
                return Err(LinesError::Newer(first.format));
            }
            sum.update(&text);
            head = Some(first);
            continue;
        };
        if !text.ends_with('\n') {
            return Err(LinesError::Truncated);
        }
        if let Ok(end) = serde_json::from_str::<End>(&text) {
            if hex::text(&sum.finalize()) != end.sha256 || items.len() as u64 != found.objects {
                return Err(LinesError::Checksum);
            }
            text.clear();
            return match input.read_line(&mut text)? {
                0 => Ok((Revision(found.revision), items)),
                _ => Err(LinesError::Line(number + 1, "there is something behind the end".to_owned())),
            };
        }
        sum.update(&text);
        let item = item(&text).map_err(|why| LinesError::Line(number, why))?;
        if items.last().is_some_and(|last| last.key >= item.key) {
            return Err(LinesError::Line(number, "the keys are not in their order".to_owned()));
        }
        items.push(item);
    }
}

fn item(text: &str) -> Result<KeyValue, String> {
    let line: Line = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let bytes = match (line.value, line.sealed) {
        (Some(value), None) => value.get().as_bytes().to_vec(),
        (None, Some(sealed)) => STANDARD.decode(sealed).map_err(|error| error.to_string())?,
        _ => return Err("it has to have either a value or a sealed one".to_owned()),
    };
    Ok(KeyValue {
        key: Arc::from(line.key),
        value: Stored::from(bytes),
        created: Revision(line.created),
        modified: Revision(line.modified),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Vec<u8> {
        let line = |key: &str, value: &[u8]| {
            line(&KeyValue {
                key: Arc::from(key),
                value: Stored::from(value.to_vec()),
                created: Revision(3),
                modified: Revision(5),
            })
        };
        let mut out = Summed { out: Vec::new(), sum: Sha256::new() };
        out.line(&Head { format: FORMAT.to_owned(), revision: 9, objects: 2 }).expect("written");
        out.line(&line("pods./default/web", br#"{"kind":"Pod","spec":{"b":1,"a":1.50}}"#)).expect("written");
        out.line(&line("secrets./default/a", b"k8s:enc:\xff\n")).expect("written");
        let end = End { sha256: hex::text(&out.sum.clone().finalize()) };
        out.line(&end).expect("written");
        out.out
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = written();
        assert!(bytes.starts_with(b"{\"format\":\"coracle-export/1\",\"revision\":9,\"objects\":2}\n"));
        let (revision, items) = read(&bytes[..]).expect("whole");
        assert_eq!((revision, items.len()), (Revision(9), 2));
        assert_eq!(&items[0].value.peek()[..], br#"{"kind":"Pod","spec":{"b":1,"a":1.50}}"#, "byte by byte");
        assert_eq!(&items[1].value.peek()[..], b"k8s:enc:\xff\n");
        assert_eq!((items[1].created, items[1].modified), (Revision(3), Revision(5)));
    }

    #[test]
    fn every_change_and_every_cut_is_found() {
        let good = written();
        for at in 0..good.len() {
            assert!(read(&good[..at]).is_err(), "cut at {at}");
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(read(&bad[..]).is_err(), "a flipped bit at {at}");
        }
        assert!(read(&[&good[..], b"x"].concat()[..]).is_err());
        assert!(matches!(read(&b"apiVersion: v1\n"[..]), Err(LinesError::Foreign)));
        let newer = String::from_utf8(good).expect("text").replacen("export/1", "export/2", 1);
        assert!(matches!(read(newer.as_bytes()), Err(LinesError::Newer(_))));
    }
}
