//! Files of variables that one container of a pod leaves for the others (KEP-3721): a subset of the shell's assignments in
//! which every value stands in single quotes.

use super::env::File;
use coracle_storage::beneath::Dir;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Bytes of a file; its writer chooses how large it is. More than a process may have of variables and arguments (2 MiB).
const MAX_BYTES: u64 = 2 << 20;

/// A file that is not of that form; the words are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvFileError {
    #[error("invalid environment variable format at line {line}: {what}")]
    Line { line: usize, what: &'static str },
    #[error("invalid environment variable format starting at line {line}: unclosed single quote")]
    Unclosed { line: usize },
}

/// Reads the file at `path` in the volume at `root`. Containers may have put anything there: links are followed as far as they
/// stay in the volume, and nothing but a file is opened.
pub fn read(root: &Path, path: &str) -> File {
    let place = root.join(path).display().to_string();
    let opened = Dir::open(root).and_then(|root| root.within(path)?.open());
    let mut text = String::new();
    let text = match opened.and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text)) {
        Ok(length) if u64::try_from(length).is_ok_and(|length| length > MAX_BYTES) => {
            Err(format!("environment variable file {place:?} is larger than {MAX_BYTES} bytes"))
        }
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("failed to open environment variable file {place:?}: {error}")),
    };
    File { place, text }
}

const BLANK: [char; 2] = [' ', '\t'];

/// The value of `key`, empty where the file does not set it. What stands behind the key's line is not judged.
pub fn value(text: &str, key: &str) -> Result<String, EnvFileError> {
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    while let Some((number, line)) = lines.next() {
        let wrong = |what| EnvFileError::Line { line: number, what };
        let line = line.trim_start_matches(BLANK);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, rest) = line.split_once('=').ok_or_else(|| wrong("missing '='"))?;
        if name.trim_end_matches(BLANK).is_empty() {
            return Err(wrong("empty variable name"));
        }
        if name.ends_with(BLANK) {
            return Err(wrong("whitespace before '=' is not allowed"));
        }
        let value = if rest.starts_with(BLANK) {
            // As the shell has it: nothing is assigned.
            String::new()
        } else {
            let first =
                rest.strip_prefix('\'').ok_or_else(|| wrong("value must be enclosed in single quotes"))?;
            quoted(number, first, &mut lines)?
        };
        if name == key {
            return Ok(value);
        }
    }
    Ok(String::new())
}

/// What stands between the quotes, of which the first was read; it may go on in the next lines.
fn quoted<'a>(
    began: usize,
    first: &'a str,
    lines: &mut impl Iterator<Item = (usize, &'a str)>,
) -> Result<String, EnvFileError> {
    let (mut value, mut number, mut rest) = (String::new(), began, first);
    loop {
        if let Some((last, after)) = rest.split_once('\'') {
            value.push_str(last);
            let after = after.trim_start_matches(BLANK);
            if after.is_empty() || after.starts_with('#') {
                return Ok(value);
            }
            return Err(EnvFileError::Line { line: number, what: "unexpected content after closing quote" });
        }
        value.push_str(rest);
        value.push('\n');
        (number, rest) = lines.next().ok_or(EnvFileError::Unclosed { line: began })?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_in_single_quotes() {
        let text =
            "# a comment\n\n  A='1 $B \"x\" \\n' # more\nB=''\n\tC='two\nlines # here\n'\nD= 'lost'\nA='2'\n";
        let found = |key: &str| value(text, key).expect(key);
        assert_eq!(found("A"), "1 $B \"x\" \\n");
        assert_eq!(found("B"), "");
        assert_eq!(found("C"), "two\nlines # here\n");
        assert_eq!(found("D"), "");
        assert_eq!(found("a"), "", "not there");
        assert_eq!(value("", "A"), Ok(String::new()));
        assert_eq!(value("A='x'\r\n", "A").as_deref(), Ok("x"));
        assert_eq!(value("A='x'\nnonsense", "A").as_deref(), Ok("x"), "what follows is nobody's business");
    }

    #[test]
    fn a_volume_is_not_left() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let volume = dir.path().join("volume");
        std::fs::create_dir_all(volume.join("sub")).expect("directories");
        std::fs::write(dir.path().join("secret"), "A='x'").expect("a file outside");
        std::fs::write(volume.join("sub/a.env"), "A='x'").expect("a file");
        for (link, to) in [("inside", "sub/a.env"), ("outside", "../secret"), ("lost", "nowhere")] {
            std::os::unix::fs::symlink(to, volume.join(link)).expect(link);
        }
        let text = |path: &str| read(&volume, path).text;
        assert_eq!(text("sub/a.env"), Ok(Some("A='x'".to_owned())));
        assert_eq!(text("inside"), Ok(Some("A='x'".to_owned())));
        assert_eq!((text("none"), text("lost")), (Ok(None), Ok(None)));
        for path in ["outside", "../secret", "sub"] {
            assert!(text(path).is_err(), "{path}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        let refused = |text: &str| value(text, "Z").expect_err(text).to_string();
        let line = "invalid environment variable format at line";
        for (text, what) in [
            ("A='1'\nB\n", "2: missing '='"),
            ("='1'", "1: empty variable name"),
            ("A ='1'", "1: whitespace before '=' is not allowed"),
            ("A=1", "1: value must be enclosed in single quotes"),
            ("A=\"1\"", "1: value must be enclosed in single quotes"),
            ("A='1'2", "1: unexpected content after closing quote"),
            ("A='1\n2' 3", "2: unexpected content after closing quote"),
        ] {
            assert_eq!(refused(text), format!("{line} {what}"), "{text:?}");
        }
        let unclosed = "invalid environment variable format starting at line 2: unclosed single quote";
        assert_eq!(refused("\nA='1\n2\n"), unclosed);
    }
}
