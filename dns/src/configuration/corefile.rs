//! The form of a Corefile (<https://coredns.io/manual/configuration/>): server blocks of directives, without their meaning.

use super::Mistake;

/// Directives may hold directives; nobody needs more levels.
const MAX_DEPTH: usize = 4;

/// A directive, or a line within one's block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directive {
    pub name: String,
    pub arguments: Vec<String>,
    pub block: Vec<Directive>,
    /// From 1.
    pub line: usize,
}

/// `keys { directives }`: what is done for the names below these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerBlock {
    pub keys: Vec<String>,
    pub directives: Vec<Directive>,
    pub line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Open,
    Close,
    EndOfLine,
}

/// # Errors
/// The first place where the text is no Corefile.
pub fn parse(text: &str) -> Result<Vec<ServerBlock>, Mistake> {
    let tokens = tokens(text)?;
    let mut reader = Reader { tokens: &tokens, at: 0 };
    let mut blocks = Vec::new();
    loop {
        reader.skip_lines();
        let Some(line) = reader.line() else { return Ok(blocks) };
        let keys = reader.words();
        if keys.is_empty() {
            return Err(Mistake::new(line, "a server block begins with the names that it is for"));
        }
        let directives = reader.block(line, MAX_DEPTH)?;
        blocks.push(ServerBlock { keys, directives, line });
    }
}

struct Reader<'t> {
    tokens: &'t [(Token, usize)],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    /// Where the next token stands.
    fn line(&self) -> Option<usize> {
        self.tokens.get(self.at).map(|(_, line)| *line)
    }

    fn skip_lines(&mut self) {
        while self.peek() == Some(&Token::EndOfLine) {
            self.at += 1;
        }
    }

    fn words(&mut self) -> Vec<String> {
        let mut words = Vec::new();
        while let Some(Token::Word(word)) = self.peek() {
            words.push(word.clone());
            self.at += 1;
        }
        words
    }

    /// What stands between braces; the opening one is next.
    fn block(&mut self, begun: usize, depth: usize) -> Result<Vec<Directive>, Mistake> {
        if self.peek() != Some(&Token::Open) || depth == 0 {
            return Err(Mistake::new(begun, "an opening brace is expected at the end of this line"));
        }
        self.at += 1;
        let mut directives = Vec::new();
        loop {
            self.skip_lines();
            let line =
                self.line().ok_or_else(|| Mistake::new(begun, "the brace of this line is never closed"))?;
            if self.peek() == Some(&Token::Close) {
                self.at += 1;
                return Ok(directives);
            }
            let mut words = self.words().into_iter();
            let name = words.next().ok_or_else(|| Mistake::new(line, "a brace without a directive"))?;
            let block =
                if self.peek() == Some(&Token::Open) { self.block(line, depth - 1)? } else { Vec::new() };
            directives.push(Directive { name, arguments: words.collect(), block, line });
        }
    }
}

fn tokens(text: &str) -> Result<Vec<(Token, usize)>, Mistake> {
    let mut tokens = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        for word in words(content, line)? {
            tokens.push((word, line));
        }
        tokens.push((Token::EndOfLine, line));
    }
    Ok(tokens)
}

/// The words of a line up to a comment; quotes hold spaces together.
fn words(content: &str, line: usize) -> Result<Vec<Token>, Mistake> {
    let mut words = Vec::new();
    let mut rest = content.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => {
                quoted.split_once('"').ok_or_else(|| Mistake::new(line, "a quote that is not closed"))?
            }
            None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        if word.contains("{$") || word.contains("{%") {
            return Err(Mistake::new(line, "variables of the environment are not filled in"));
        }
        words.push(match word {
            "{" => Token::Open,
            "}" => Token::Close,
            word => Token::Word(word.to_owned()),
        });
        rest = after.trim_start();
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_directives_and_these_their_lines() {
        let text = "# all\n.:53 {\n  errors # here\n  cache 30 {\n    success 100 20\n  }\n}\na.test b.test:53 {\n forward . 192.0.2.1\n}\n";
        let blocks = parse(text).expect("a Corefile");
        assert_eq!(blocks[0].keys, [".:53"]);
        let cache = &blocks[0].directives[1];
        assert_eq!((cache.name.as_str(), cache.line), ("cache", 4));
        assert_eq!(cache.block[0].arguments, ["100", "20"]);
        assert_eq!(blocks[1].keys, ["a.test", "b.test:53"]);
        assert_eq!(blocks[1].directives[0].arguments, [".", "192.0.2.1"]);
        assert_eq!(parse("\n# nothing\n"), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_corefile_is_told_by_its_line() {
        for (text, line) in [
            (". {\n errors\n", 1),
            ("errors\n", 1),
            ("{\n}\n", 1),
            (". {\n log \"x\n}\n", 2),
            (". {\n forward . {$UPSTREAM}\n}\n", 2),
            (". {\n {\n }\n}\n", 2),
            (". {\n a {\n b {\n c {\n d {\n }}}}}\n", 5),
        ] {
            assert_eq!(parse(text).expect_err(text).line, line, "{text}");
        }
    }
}
