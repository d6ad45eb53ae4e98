//! Links of HTML pages (<https://html.spec.whatwg.org/multipage/indices.html#attributes-3>).

/// Elements with the attributes that hold an address, as upstream's proxy knows them.
const LINKS: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Elements whose content is text up to their end tag.
const RAW_TEXT: &[&str] =
    &["iframe", "noembed", "noframes", "noscript", "script", "style", "textarea", "title", "xmp"];

/// The page with every address replaced by what `link` makes of it; everything else is copied as it is.
pub(super) fn rewrite(page: &[u8], link: impl Fn(&str) -> String) -> Vec<u8> {
    let mut out = Vec::with_capacity(page.len() + page.len() / 8);
    let mut at = 0;
    while let Some(found) = position(&page[at..], b"<") {
        let start = at + found;
        out.extend_from_slice(&page[at..start]);
        at = start;
        let end = match page.get(start + 1) {
            Some(b'!') if page[start..].starts_with(b"<!--") => past(page, start + 4, b"-->"),
            Some(b'!' | b'?' | b'/') => past(page, start + 1, b">"),
            Some(c) if c.is_ascii_alphabetic() => {
                let tag = Tag::parse(page, start);
                tag.write(page, &link, &mut out);
                at = tag.end;
                end_of_text(page, &tag)
            }
            _ => start + 1,
        };
        out.extend_from_slice(&page[at..end]);
        at = end;
    }
    out.extend_from_slice(&page[at..]);
    out
}

fn position(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window.eq_ignore_ascii_case(what))
}

/// Behind the next `what`, or the page's end.
fn past(page: &[u8], from: usize, what: &[u8]) -> usize {
    let rest = page.get(from..).unwrap_or_default();
    position(rest, what).map_or(page.len(), |found| from + found + what.len())
}

/// Where the text of an element that has no markup inside ends.
fn end_of_text(page: &[u8], tag: &Tag) -> usize {
    if !RAW_TEXT.contains(&tag.name.as_str()) {
        return tag.end;
    }
    let end = format!("</{}", tag.name);
    position(&page[tag.end..], end.as_bytes()).map_or(page.len(), |found| tag.end + found)
}

/// A start tag.
struct Tag {
    name: String,
    start: usize,
    /// Behind its `>`.
    end: usize,
    attributes: Vec<Attribute>,
}

/// Where in the page the value stands, quotes included.
struct Attribute {
    name: String,
    outer: (usize, usize),
    value: (usize, usize),
}

fn lower(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).to_ascii_lowercase()
}

impl Tag {
    fn parse(page: &[u8], start: usize) -> Self {
        let mut reader = Reader { page, at: start + 1 };
        let name = lower(reader.until(|b| b.is_ascii_whitespace() || b == b'/' || b == b'>'));
        let mut attributes = Vec::new();
        loop {
            reader.until(|b| !b.is_ascii_whitespace() && b != b'/');
            match reader.peek() {
                None => break,
                Some(b'>') => {
                    reader.at += 1;
                    break;
                }
                Some(_) => attributes.extend(reader.attribute()),
            }
        }
        Self { name, start, end: reader.at, attributes }
    }

    fn write(&self, page: &[u8], link: impl Fn(&str) -> String, out: &mut Vec<u8>) {
        let known = LINKS.iter().find(|(name, _)| *name == self.name).map_or(&[][..], |(_, names)| names);
        let mut at = self.start;
        for attribute in self.attributes.iter().filter(|a| known.contains(&a.name.as_str())) {
            let (from, to) = attribute.value;
            let Ok(value) = std::str::from_utf8(&page[from..to]) else { continue };
            let new = link(value);
            if new == value {
                continue;
            }
            out.extend_from_slice(&page[at..attribute.outer.0]);
            out.push(b'"');
            out.extend_from_slice(new.replace('"', "&#34;").as_bytes());
            out.push(b'"');
            at = attribute.outer.1;
        }
        out.extend_from_slice(&page[at..self.end]);
    }
}

struct Reader<'a> {
    page: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.page.get(self.at).copied()
    }

    fn until(&mut self, stop: impl Fn(u8) -> bool) -> &'a [u8] {
        let start = self.at;
        let rest = &self.page[start..];
        self.at = start + rest.iter().position(|b| stop(*b)).unwrap_or(rest.len());
        &self.page[start..self.at]
    }

    /// `name`, `name=value`, `name="value"`; always moves on. `None` without a value.
    fn attribute(&mut self) -> Option<Attribute> {
        let start = self.at;
        // A `=` in front belongs to the name.
        self.at += 1;
        self.until(|b| b.is_ascii_whitespace() || b"/>=".contains(&b));
        let name = lower(&self.page[start..self.at]);
        self.until(|b| !b.is_ascii_whitespace());
        if self.peek() != Some(b'=') {
            return None;
        }
        self.at += 1;
        self.until(|b| !b.is_ascii_whitespace());
        let outer = self.at;
        let value = match self.peek() {
            Some(quote @ (b'"' | b'\'')) => {
                self.at += 1;
                let from = self.at;
                self.until(|b| b == quote);
                let value = (from, self.at);
                self.at = (self.at + 1).min(self.page.len());
                value
            }
            _ => {
                self.until(|b| b.is_ascii_whitespace() || b == b'>');
                (outer, self.at)
            }
        };
        Some(Attribute { name, outer: (outer, self.at), value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixed(page: &str) -> String {
        let link = |l: &str| if l.starts_with('/') { format!("/p{l}") } else { l.to_owned() };
        String::from_utf8(rewrite(page.as_bytes(), link)).unwrap()
    }

    #[test]
    fn links_and_nothing_else() {
        let table = [
            (r#"<a href="/x">test</a>"#, r#"<a href="/p/x">test</a>"#),
            (r#"<A class=b HREF='/x"y' >t"#, r#"<A class=b HREF="/p/x&#34;y" >t"#),
            (r"<img src=/i.png><br/>", r#"<img src="/p/i.png"><br/>"#),
            (r#"<img src="i.png" alt="/x">"#, r#"<img src="i.png" alt="/x">"#),
            (r#"<!-- <a href="/x"> --><a href="/y">"#, r#"<!-- <a href="/x"> --><a href="/p/y">"#),
            (
                r#"<script src="/s.js">a = '<a href="/x">'</script><a href="/y">"#,
                r#"<script src="/p/s.js">a = '<a href="/x">'</script><a href="/p/y">"#,
            ),
            (r#"1 < 2 <form action="/f" method="post">"#, r#"1 < 2 <form action="/p/f" method="post">"#),
            (r#"<!doctype html><link href="/c.css" />"#, r#"<!doctype html><link href="/p/c.css" />"#),
            (r#"<a href="/x"#, r#"<a href="/p/x""#),
            ("<a href", "<a href"),
            ("<a href=", "<a href="),
            ("<", "<"),
            ("<!--", "<!--"),
            ("<style>a { b: '</sty' ", "<style>a { b: '</sty' "),
        ];
        for (page, expected) in table {
            assert_eq!(prefixed(page), expected, "{page}");
        }
    }

    #[test]
    fn any_bytes_are_a_page() {
        let link = |l: &str| l.to_owned();
        for length in 0..6_u32 {
            let letters = b"<a /=\"'>!-\xff";
            let count = letters.len().pow(length);
            for n in (0..count).step_by(1 + count / 3000) {
                let mut rest = n;
                let mut page = Vec::new();
                for _ in 0..length {
                    page.push(letters[rest % letters.len()]);
                    rest /= letters.len();
                }
                assert_eq!(rewrite(&page, link), page);
            }
        }
    }
}
