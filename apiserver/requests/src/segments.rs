//! The path of a resource, segment by segment: what one reader takes for a name, no other may take for two, or for none.

use crate::query::has_whole_escapes;
use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// A segment that is empty, `.` or `..`, holds an encoded slash, or cannot be decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadPath;

/// The segments of an encoded path, from the front. Slashes at the end are none.
pub(super) struct Segments<'a> {
    path: &'a str,
    at: usize,
}

impl<'a> Segments<'a> {
    pub fn of(path: &'a str) -> Self {
        Self { path, at: 0 }
    }

    /// The next one, decoded; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Cow<'a, str>>, BadPath> {
        let rest = self.rest();
        if rest.bytes().all(|byte| byte == b'/') {
            return Ok(None);
        }
        let rest = rest.strip_prefix('/').ok_or(BadPath)?;
        let segment = rest.split('/').next().unwrap_or_default();
        self.at += 1 + segment.len();
        decoded(segment).filter(|name| is_plain(name)).map(Some).ok_or(BadPath)
    }

    /// What is left, encoded.
    pub fn rest(&self) -> &'a str {
        &self.path[self.at..]
    }

    /// Where what is left begins.
    pub fn at(&self) -> usize {
        self.at
    }
}

fn is_plain(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains('/')
}

fn decoded(segment: &str) -> Option<Cow<'_, str>> {
    has_whole_escapes(segment).then(|| percent_decode_str(segment).decode_utf8().ok())?
}

/// Decoded, where it can be.
fn plain(segment: &str) -> Cow<'_, str> {
    decoded(segment).unwrap_or(Cow::Borrowed(segment))
}

/// The encoded path with its `.` and `..` resolved, encoded ones too, as upstream sends it on to what is proxied: nothing
/// leads above the root, and who admits a path knows where it leads.
pub fn without_dots(path: &str) -> Cow<'_, str> {
    if !path.split('/').any(|segment| matches!(&*plain(segment), "." | "..")) {
        return Cow::Borrowed(path);
    }
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_in_slash = false;
    for segment in path.split('/').skip(1) {
        let dots = plain(segment);
        ends_in_slash = matches!(&*dots, "." | ".." | "");
        match &*dots {
            "." => {}
            ".." => {
                kept.pop();
            }
            _ => kept.push(segment),
        }
    }
    let mut path: String = kept.iter().flat_map(|segment| ["/", segment]).collect();
    if ends_in_slash && !path.ends_with('/') {
        path.push('/');
    }
    Cow::Owned(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(path: &str) -> Result<Vec<String>, BadPath> {
        let mut segments = Segments::of(path);
        let mut found = Vec::new();
        while let Some(segment) = segments.next()? {
            found.push(segment.into_owned());
        }
        Ok(found)
    }

    #[test]
    fn plain_paths() {
        for (path, expected) in [
            ("/", vec![]),
            ("", vec![]),
            ("/a/b", vec!["a", "b"]),
            ("/a/b//", vec!["a", "b"]),
            ("/%61/b%20c", vec!["a", "b c"]),
            ("/a%252Fb", vec!["a%2Fb"]),
        ] {
            assert_eq!(all(path).unwrap(), expected, "{path}");
        }
    }

    #[test]
    fn paths_that_are_not_plain() {
        for path in
            ["//a", "/a//b", "/./a", "/a/..", "/a/%2e%2E/b", "/a%2Fb", "/%2f", "/a/%zz", "/a/%", "/%ff", "*"]
        {
            assert_eq!(all(path), Err(BadPath), "{path}");
        }
    }

    #[test]
    fn dots_are_resolved_and_nothing_else_is_changed() {
        for (path, expected) in [
            ("/a/b", "/a/b"),
            ("//a/", "//a/"),
            ("/a%2F..%2Fb", "/a%2F..%2Fb"),
            ("/a/../b", "/b"),
            ("/a/%2e%2E/b/", "/b/"),
            ("/../../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/..", "/"),
            ("/a%20b/./c", "/a%20b/c"),
        ] {
            assert_eq!(without_dots(path), expected, "{path}");
        }
    }
}
