//! JSON for people to read, made of JSON: the order of members stays.

/// As serde_json's pretty form, with a line break at the end. `json` is valid.
pub fn indented(json: &[u8]) -> Vec<u8> {
    let mut page = Page { out: Vec::with_capacity(json.len() * 2), depth: 0, opened: false };
    let (mut in_text, mut escaped) = (false, false);
    for &byte in json {
        if in_text {
            page.out.push(byte);
            in_text = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
        } else {
            in_text = byte == b'"';
            page.put(byte);
        }
    }
    page.out.push(b'\n');
    page.out
}

struct Page {
    out: Vec<u8>,
    depth: usize,
    /// Whether the last byte opened an object or a list.
    opened: bool,
}

impl Page {
    fn put(&mut self, byte: u8) {
        let opened = self.opened;
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' => return,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if !opened {
                    self.line();
                }
            }
            _ if opened => self.line(),
            _ => {}
        }
        self.opened = false;
        self.out.push(byte);
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                self.opened = true;
            }
            b',' => self.line(),
            b':' => self.out.push(b' '),
            _ => {}
        }
    }

    fn line(&mut self) {
        self.out.push(b'\n');
        self.out.extend(std::iter::repeat_n(b' ', self.depth * 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn as_serde_writes_it() {
        for text in [
            r#"{"a":{},"b":[],"c":[1,{"d":null}],"e":"x: {\"y\\\\\", [1]"}"#,
            r#"[[],[[]],{"a":[true,-1.5]},"\\"]"#,
            "\"text\"",
            "{}",
        ] {
            let value: Value = serde_json::from_str(text).unwrap();
            let mut wanted = serde_json::to_vec_pretty(&value).unwrap();
            wanted.push(b'\n');
            assert_eq!(String::from_utf8(indented(text.as_bytes())), String::from_utf8(wanted.clone()));
            assert_eq!(indented(&wanted), wanted, "again");
        }
    }

    #[test]
    fn members_stay_where_they_are() {
        assert_eq!(indented(br#"{"b":1,"a":2}"#), b"{\n  \"b\": 1,\n  \"a\": 2\n}\n");
    }
}
