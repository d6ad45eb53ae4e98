//! What a child tells: a line of words for every write before it begins and after it is acknowledged, and what it found
//! when it opened the store.
//!
//! A write has a number that no other write of the same life has; values carry it, so that whatever is found says which
//! write it comes from.

use std::fmt;
use std::str::SplitWhitespace;

/// Of a write: number, above zero.
pub type Number = u64;
pub type Rev = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Synced,
    Batched,
    Volatile,
}

/// One key of a write: the digest of the value it puts there, or a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub key: String,
    pub put: Option<Held>,
}

/// A value, as far as it has to be told apart from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub number: Number,
    /// Of the object: stays the same from its creation to its deletion.
    pub uid: u64,
    pub digest: u64,
}

#[derive(Clone, Debug)]
pub struct Found {
    pub key: String,
    pub created: Rev,
    pub modified: Rev,
    pub held: Held,
}

/// A change as a watcher sees it: the number of the write whose value it brings, `None` for a deletion.
pub type Seen = (String, Option<Number>);

#[derive(Clone, Debug)]
pub enum Line {
    Begin {
        number: Number,
        kind: Kind,
        parts: Vec<Part>,
    },
    Acked {
        number: Number,
        revision: Rev,
    },
    Refused {
        number: Number,
        why: String,
    },
    /// A watcher saw a commit.
    Saw {
        revision: Rev,
        changes: Vec<Seen>,
    },
    Ready {
        micros: u64,
        revision: Rev,
        oldest: Rev,
    },
    Incident(String),
    Object(Found),
    /// The objects told since `Ready` are all, as of this revision.
    Listed(Rev),
    /// What a list as of an older revision held: key, revision of its last change, number.
    Then {
        key: String,
        modified: Rev,
        number: Number,
    },
    ListedThen(Rev),
    /// A commit that a watcher from the oldest revision on was told.
    Replayed {
        revision: Rev,
        changes: Vec<Seen>,
    },
    Checked,
    /// Something is wrong that the child can tell by itself.
    Bad(String),
    /// The store did not open.
    NotOpened(String),
    Closed,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.number, self.uid, self.digest)
    }
}

fn changes(f: &mut fmt::Formatter<'_>, changes: &[Seen]) -> fmt::Result {
    changes.iter().try_for_each(|(key, number)| write!(f, " {key} {}", number.unwrap_or(0)))
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin { number, kind, parts } => {
                write!(f, "begin {number} {kind:?}")?;
                parts.iter().try_for_each(|part| match &part.put {
                    Some(held) => write!(f, " put {} {held}", part.key),
                    None => write!(f, " delete {}", part.key),
                })
            }
            Self::Acked { number, revision } => write!(f, "acked {number} {revision}"),
            Self::Refused { number, why } => write!(f, "refused {number} {why}"),
            Self::Saw { revision, changes: seen } => {
                write!(f, "saw {revision}")?;
                changes(f, seen)
            }
            Self::Ready { micros, revision, oldest } => write!(f, "ready {micros} {revision} {oldest}"),
            Self::Incident(text) => write!(f, "incident {}", text.replace('\n', " ")),
            Self::Object(found) => {
                write!(f, "object {} {} {} {}", found.key, found.created, found.modified, found.held)
            }
            Self::Listed(revision) => write!(f, "listed {revision}"),
            Self::Then { key, modified, number } => write!(f, "then {key} {modified} {number}"),
            Self::ListedThen(revision) => write!(f, "listed-then {revision}"),
            Self::Replayed { revision, changes: seen } => {
                write!(f, "replayed {revision}")?;
                changes(f, seen)
            }
            Self::Checked => write!(f, "checked"),
            Self::Bad(text) => write!(f, "bad {}", text.replace('\n', " ")),
            Self::NotOpened(text) => write!(f, "not-opened {}", text.replace('\n', " ")),
            Self::Closed => write!(f, "closed"),
        }
    }
}

/// `None` for a line that was cut short.
pub fn parse(line: &str) -> Option<Line> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let mut words = rest.split_whitespace();
    Some(match word {
        "begin" => {
            let number = next(&mut words)?;
            let kind = match words.next()? {
                "Synced" => Kind::Synced,
                "Batched" => Kind::Batched,
                _ => Kind::Volatile,
            };
            Line::Begin { number, kind, parts: parts(&mut words)? }
        }
        "acked" => Line::Acked { number: next(&mut words)?, revision: next(&mut words)? },
        "refused" => Line::Refused { number: next(&mut words)?, why: rest.to_owned() },
        "saw" => Line::Saw { revision: next(&mut words)?, changes: seen(&mut words)? },
        "ready" => {
            Line::Ready { micros: next(&mut words)?, revision: next(&mut words)?, oldest: next(&mut words)? }
        }
        "incident" => Line::Incident(rest.to_owned()),
        "object" => Line::Object(Found {
            key: words.next()?.to_owned(),
            created: next(&mut words)?,
            modified: next(&mut words)?,
            held: held(&mut words)?,
        }),
        "listed" => Line::Listed(next(&mut words)?),
        "then" => Line::Then {
            key: words.next()?.to_owned(),
            modified: next(&mut words)?,
            number: next(&mut words)?,
        },
        "listed-then" => Line::ListedThen(next(&mut words)?),
        "replayed" => Line::Replayed { revision: next(&mut words)?, changes: seen(&mut words)? },
        "checked" => Line::Checked,
        "bad" => Line::Bad(rest.to_owned()),
        "not-opened" => Line::NotOpened(rest.to_owned()),
        "closed" => Line::Closed,
        _ => return None,
    })
}

fn next(words: &mut SplitWhitespace<'_>) -> Option<u64> {
    words.next()?.parse().ok()
}

fn held(words: &mut SplitWhitespace<'_>) -> Option<Held> {
    Some(Held { number: next(words)?, uid: next(words)?, digest: next(words)? })
}

fn parts(words: &mut SplitWhitespace<'_>) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    while let Some(verb) = words.next() {
        let key = words.next()?.to_owned();
        let put = if verb == "put" { Some(held(words)?) } else { None };
        parts.push(Part { key, put });
    }
    Some(parts)
}

fn seen(words: &mut SplitWhitespace<'_>) -> Option<Vec<Seen>> {
    let mut changes = Vec::new();
    while let Some(key) = words.next() {
        let number = next(words)?;
        changes.push((key.to_owned(), (number > 0).then_some(number)));
    }
    Some(changes)
}
