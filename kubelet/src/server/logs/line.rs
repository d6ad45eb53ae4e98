//! Lines of CRI log files: `<RFC 3339 time> <stdout|stderr> <tags> <content>`, the first tag `P` for a part of a longer
//! line and `F` for its end.

use super::{Options, Shown};
use bytes::{BufMut, BytesMut};
use jiff::Timestamp;

/// One line of the file.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    time: &'a str,
    stdout: bool,
    partial: bool,
    content: &'a [u8],
}

fn word<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let end = rest.iter().position(|byte| *byte == b' ')?;
    let (word, after) = rest.split_at(end);
    *rest = &after[1..];
    std::str::from_utf8(word).ok()
}

/// `None` for what is no CRI log line.
fn parse(mut rest: &[u8]) -> Option<Line<'_>> {
    let time = word(&mut rest)?;
    let stdout = match word(&mut rest)? {
        "stdout" => true,
        "stderr" => false,
        _ => return None,
    };
    let tags = word(&mut rest)?;
    let partial = tags.split(':').next() == Some("P");
    Some(Line { time, stdout, partial, content: rest })
}

/// Turns lines of the file into what the client reads.
pub(super) struct Printer {
    timestamps: bool,
    shown: Shown,
    /// Cleared by the first line that is late enough: times of one file do not go back.
    since: Option<Timestamp>,
    left_bytes: Option<u64>,
    /// The next content begins a line of its own, so it gets a time.
    at_start: bool,
}

impl Printer {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            timestamps: options.timestamps,
            shown: options.shown,
            since: options.since,
            left_bytes: options.limit_bytes,
            at_start: true,
        }
    }

    /// Whether the limit of bytes is reached.
    pub(super) fn is_done(&self) -> bool {
        self.left_bytes == Some(0)
    }

    /// Appends one line of the file (without its newline) to `out` in the form the client asked for.
    pub(super) fn print(&mut self, raw: &[u8], out: &mut BytesMut) {
        let Some(line) = parse(raw) else {
            tracing::debug!(bytes = raw.len(), "not a CRI log line");
            return;
        };
        let wanted = match self.shown {
            Shown::All => true,
            Shown::Stdout => line.stdout,
            Shown::Stderr => !line.stdout,
        };
        if !wanted || !self.late_enough(line.time) {
            return;
        }
        if self.timestamps && self.at_start {
            self.put(line.time.as_bytes(), out);
            self.put(b" ", out);
        }
        self.put(line.content, out);
        if !line.partial {
            self.put(b"\n", out);
        }
        self.at_start = !line.partial;
    }

    fn late_enough(&mut self, time: &str) -> bool {
        let Some(since) = self.since else { return true };
        let late = time.parse::<Timestamp>().is_ok_and(|time| time >= since);
        if late {
            self.since = None;
        }
        late
    }

    fn put(&mut self, bytes: &[u8], out: &mut BytesMut) {
        let Some(left) = &mut self.left_bytes else { return out.put_slice(bytes) };
        let room = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
        out.put_slice(&bytes[..room]);
        *left -= room as u64;
    }
}
