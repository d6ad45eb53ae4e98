//! The grammar of label selectors in query strings:
//! <https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors>

use super::{Operator, Requirement, SelectorError};

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Symbol(&'static str),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Symbol(symbol) => symbol,
            Self::End => "",
        }
    }
}

/// Longest first, so that `==` is not two `=`.
const SYMBOLS: &[&str] = &["==", "!=", "=", "!", "(", ")", ",", "<", ">"];

fn tokens(text: &str) -> Vec<Token> {
    let special = |c: char| c.is_ascii_whitespace() || "=!(),<>".contains(c);
    let mut rest = text.trim_ascii_start();
    let mut out = Vec::new();
    while !rest.is_empty() {
        if let Some(symbol) = SYMBOLS.iter().find(|s| rest.starts_with(**s)) {
            out.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let (word, after) = rest.split_at(rest.find(special).unwrap_or(rest.len()));
            out.push(Token::Word(word.to_owned()));
            rest = after;
        }
        rest = rest.trim_ascii_start();
    }
    out
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

fn unexpected(found: &Token, expected: &str) -> SelectorError {
    SelectorError(format!("found '{}', expected: {expected}", found.text()))
}

fn in_requirement(error: &SelectorError) -> SelectorError {
    SelectorError(format!("unable to parse requirement: {error}"))
}

impl Parser {
    fn peek(&self) -> Token {
        self.tokens.get(self.position).cloned().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let negated = self.peek() == Token::Symbol("!");
        if negated {
            self.position += 1;
        }
        let key = match self.next() {
            Token::Word(word) => word,
            other => return Err(unexpected(&other, "identifier")),
        };
        if negated {
            return Requirement::new(&key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Requirement::new(&key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.set()?,
            _ => vec![self.value()?],
        };
        Requirement::new(&key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, SelectorError> {
        let token = self.next();
        match token.text() {
            "in" => Ok(Operator::In),
            "notin" => Ok(Operator::NotIn),
            "=" => Ok(Operator::Equals),
            "==" => Ok(Operator::DoubleEquals),
            "!=" => Ok(Operator::NotEquals),
            ">" => Ok(Operator::GreaterThan),
            "<" => Ok(Operator::LessThan),
            _ => Err(unexpected(&token, "in, notin, =, ==, !=, gt, lt")),
        }
    }

    /// The value after `=`; nothing at all is the empty value.
    fn value(&mut self) -> Result<String, SelectorError> {
        match self.peek() {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Word(word) => {
                self.position += 1;
                Ok(word)
            }
            other => Err(unexpected(&other, "identifier")),
        }
    }

    /// `(a,b,)`: an element may be empty.
    fn set(&mut self) -> Result<Vec<String>, SelectorError> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(unexpected(&open, "'('"));
        }
        let mut values = Vec::new();
        loop {
            values.push(match self.peek() {
                Token::Word(word) => {
                    self.position += 1;
                    word
                }
                _ => String::new(),
            });
            match self.next() {
                Token::Symbol(",") => {}
                Token::Symbol(")") => return Ok(values),
                other => return Err(unexpected(&other, "',' or ')'")),
            }
        }
    }
}

pub(super) fn label_selector(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut parser = Parser { tokens: tokens(text), position: 0 };
    let mut requirements = Vec::new();
    match parser.peek() {
        Token::End => return Ok(requirements),
        Token::Word(_) | Token::Symbol("!") => {}
        other => return Err(unexpected(&other, "!, identifier, or 'end of string'")),
    }
    loop {
        requirements.push(parser.requirement().map_err(|e| in_requirement(&e))?);
        match parser.next() {
            Token::End => return Ok(requirements),
            Token::Symbol(",") => {}
            other => return Err(unexpected(&other, "',' or 'end of string'")),
        }
        if !matches!(parser.peek(), Token::Word(_) | Token::Symbol("!")) {
            return Err(unexpected(&parser.peek(), "identifier after ','"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::LabelSelector;

    #[test]
    fn refused_with_upstreams_words() {
        for (text, words) in [
            ("a,", "found '', expected: identifier after ','"),
            (",a", "found ',', expected: !, identifier, or 'end of string'"),
            ("a=b=c", "found '=', expected: ',' or 'end of string'"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a in b", "unable to parse requirement: found 'b', expected: '('"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            (
                "a>b",
                "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value \
                 must be an integer",
            ),
        ] {
            assert_eq!(LabelSelector::parse(text).unwrap_err().to_string(), words, "{text}");
        }
        let error = LabelSelector::parse("a=-b").unwrap_err().to_string();
        assert!(error.starts_with(
            "unable to parse requirement: values[0][a]: Invalid value: \"-b\": a valid label must be"
        ));
    }

    #[test]
    fn printed_in_the_order_of_keys() {
        let selector = LabelSelector::parse("b notin (y,x),a,!c,d==1").unwrap();
        assert_eq!(selector.to_string(), "a,b notin (x,y),!c,d==1");
    }
}
