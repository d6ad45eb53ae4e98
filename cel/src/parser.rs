//! Tokens to a tree, by recursive descent along the language's grammar.

mod macros;

use crate::ast::{Entry, Expr, Literal, Node};
use crate::error::SyntaxError;
use crate::lexer::{Token, tokens};

/// Expressions nested deeper are refused. cel-go's limit is 250; ours keeps within a thread's stack.
const MAX_DEPTH: usize = 64;
/// So many operators in a row make a tree as deep.
const MAX_HEIGHT: usize = 300;
/// Characters of one text, as upstream limits them.
const MAX_CHARACTERS: usize = 100_000;
/// Words that the language keeps for itself.
const RESERVED: [&str; 21] = [
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
    "true",
    "false",
    "null",
];

/// Names before a dot that are libraries, not variables.
const LIBRARIES: [&str; 12] = [
    "math",
    "sets",
    "strings",
    "base64",
    "optional",
    "format",
    "ip",
    "jsonpatch",
    "cel",
    "lists",
    "regex",
    "google",
];

/// # Errors
/// Names the first place that is no part of an expression.
pub fn parse(source: &str) -> Result<(Expr, usize), SyntaxError> {
    let size = source.chars().count();
    if size > MAX_CHARACTERS {
        let why = format!("expression code point size exceeds limit: size: {size}, limit {MAX_CHARACTERS}");
        return Err(SyntaxError::new(0, why));
    }
    let mut parser = Parser { source, tokens: tokens(source)?, next: 0, heights: Vec::new(), depth: 0 };
    let expr = parser.expression()?;
    match parser.peek() {
        Token::End => Ok((expr, parser.heights.len())),
        _ => Err(parser.unexpected(Wanted::End)),
    }
}

/// What the grammar asks for where a token does not fit.
#[derive(Clone, Copy, PartialEq)]
enum Wanted {
    End,
    /// What an expression can begin with.
    Operand,
    /// One of many things, which nobody would read.
    Other,
}

impl Wanted {
    fn fits(self, token: &Token) -> bool {
        match (self, token) {
            (Self::End, Token::End) => true,
            (Self::Operand, Token::Sign(sign)) => matches!(*sign, "[" | "{" | "(" | "." | "-" | "!"),
            (Self::Operand, token) => !matches!(token, Token::End | Token::Quoted(_)),
            _ => false,
        }
    }

    fn list(self) -> &'static str {
        match self {
            Self::End => " expecting <EOF>",
            Self::Operand => {
                " expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', \
                 NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
            }
            Self::Other => "",
        }
    }
}

pub struct Parser<'a> {
    source: &'a str,
    tokens: Vec<(usize, Token)>,
    next: usize,
    /// Of the trees below each node, by number.
    heights: Vec<usize>,
    depth: usize,
}

type Parsed = Result<Expr, SyntaxError>;

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.next].1
    }

    fn at(&self) -> usize {
        self.tokens[self.next].0
    }

    fn take(&mut self) -> Token {
        let token = self.tokens[self.next].1.clone();
        if self.next + 1 < self.tokens.len() {
            self.next += 1;
        }
        token
    }

    /// A token is one too many where the next one would fit, as upstream's parser tells it.
    fn unexpected(&self, wanted: Wanted) -> SyntaxError {
        let token = match self.peek() {
            Token::End => "<EOF>",
            _ => self.written(self.next),
        };
        let next = self.tokens.get(self.next + 1).map(|(_, next)| next);
        let what = if next.is_some_and(|next| wanted.fits(next)) { "extraneous" } else { "mismatched" };
        let list = wanted.list();
        SyntaxError::new(self.at(), format!("Syntax error: {what} input '{token}'{list}"))
    }

    /// A token as it stands in the source.
    fn written(&self, index: usize) -> &str {
        let end = self.tokens.get(index + 1).map_or(self.source.len(), |(end, _)| *end);
        self.source.get(self.tokens[index].0..end).unwrap_or_default().trim_end()
    }

    fn sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Token::Sign(s) if *s == sign);
        if found {
            self.take();
        }
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), SyntaxError> {
        if self.sign(sign) { Ok(()) } else { Err(self.unexpected(Wanted::Other)) }
    }

    pub(crate) fn make(&mut self, at: usize, node: Node) -> Expr {
        let expr = Expr { id: self.heights.len(), at, node };
        let below = expr.parts().iter().map(|part| self.heights[part.id]).max();
        self.heights.push(below.map_or(0, |height| height + 1));
        expr
    }

    fn call(&mut self, at: usize, function: &str, arguments: Vec<Expr>) -> Expr {
        self.make(at, Node::Call { function: function.to_owned(), member: false, arguments })
    }

    fn not_too_high(&self, expr: &Expr) -> Result<(), SyntaxError> {
        if self.heights[expr.id] <= MAX_HEIGHT {
            return Ok(());
        }
        Err(SyntaxError::new(expr.at, format!("expression recursion limit exceeded: {MAX_HEIGHT}")))
    }

    fn expression(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(SyntaxError::new(
                self.at(),
                format!("expression recursion limit exceeded: {MAX_DEPTH}"),
            ));
        }
        let condition = self.or()?;
        let at = self.at();
        let expr = if self.sign("?") {
            let yes = self.or()?;
            self.expect(":")?;
            let no = self.expression()?;
            self.make(at, Node::Choice(condition.into(), yes.into(), no.into()))
        } else {
            condition
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn or(&mut self) -> Parsed {
        let mut left = self.and()?;
        loop {
            let at = self.at();
            if !self.sign("||") {
                return Ok(left);
            }
            let right = self.and()?;
            left = self.make(at, Node::Or(left.into(), right.into()));
            self.not_too_high(&left)?;
        }
    }

    fn and(&mut self) -> Parsed {
        let mut left = self.relation()?;
        loop {
            let at = self.at();
            if !self.sign("&&") {
                return Ok(left);
            }
            let right = self.relation()?;
            left = self.make(at, Node::And(left.into(), right.into()));
            self.not_too_high(&left)?;
        }
    }

    /// Left-associative operators, all of one strength.
    fn operators(
        &mut self,
        signs: &[(&'static str, &'static str)],
        operand: fn(&mut Self) -> Parsed,
    ) -> Parsed {
        let mut left = operand(self)?;
        loop {
            let at = self.at();
            let function = match self.peek() {
                Token::Sign(sign) => signs.iter().find(|(s, _)| s == sign).map(|(_, f)| *f),
                Token::Ident(word) if word == "in" => signs.iter().find(|(s, _)| *s == "in").map(|(_, f)| *f),
                _ => None,
            };
            let Some(function) = function else { return Ok(left) };
            self.take();
            let right = operand(self)?;
            left = self.call(at, function, vec![left, right]);
            self.not_too_high(&left)?;
        }
    }

    fn relation(&mut self) -> Parsed {
        let signs = [
            ("==", "_==_"),
            ("!=", "_!=_"),
            ("<=", "_<=_"),
            (">=", "_>=_"),
            ("<", "_<_"),
            (">", "_>_"),
            ("in", "@in"),
        ];
        self.operators(&signs, Self::sum)
    }

    fn sum(&mut self) -> Parsed {
        self.operators(&[("+", "_+_"), ("-", "_-_")], Self::product)
    }

    fn product(&mut self) -> Parsed {
        self.operators(&[("*", "_*_"), ("/", "_/_"), ("%", "_%_")], Self::unary)
    }

    fn unary(&mut self) -> Parsed {
        let at = self.at();
        for (sign, function) in [("!", "!_"), ("-", "-_")] {
            let mut count = 0;
            while self.sign(sign) {
                count += 1;
            }
            if count == 0 {
                continue;
            }
            let negative = sign == "-" && count % 2 == 1;
            if let Some(number) = self.negative_number(negative) {
                let literal = self.make(at, Node::Literal(number));
                return self.members(literal);
            }
            let operand = self.primary_with_members()?;
            return Ok(if count % 2 == 1 { self.call(at, function, vec![operand]) } else { operand });
        }
        self.primary_with_members()
    }

    /// The number that follows a minus, taken with it.
    fn negative_number(&mut self, negative: bool) -> Option<Literal> {
        if !negative {
            return None;
        }
        let number = match self.peek() {
            Token::Int(value) => Literal::Int(-value),
            Token::IntMin => Literal::Int(i64::MIN),
            Token::Double(value) => Literal::Double(-value),
            _ => return None,
        };
        self.take();
        Some(number)
    }

    fn primary_with_members(&mut self) -> Parsed {
        let primary = self.primary()?;
        self.members(primary)
    }

    fn primary(&mut self) -> Parsed {
        let at = self.at();
        let literal = match self.peek().clone() {
            Token::Int(value) => Literal::Int(value),
            Token::Uint(value) => Literal::Uint(value),
            Token::Double(value) => Literal::Double(value),
            Token::String(value) => Literal::String(value),
            Token::Bytes(value) => Literal::Bytes(value),
            Token::IntMin => return Err(SyntaxError::new(at, "invalid int literal")),
            Token::Ident(name) => return self.name(at, &name),
            Token::Sign(".") => {
                // A leading dot names the root; there is only one scope.
                self.take();
                let Token::Ident(name) = self.peek().clone() else {
                    return Err(self.unexpected(Wanted::Other));
                };
                return self.name(at, &name);
            }
            Token::Sign("(") => {
                self.take();
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Token::Sign("[") => return self.list(at),
            Token::Sign("{") => return self.map(at),
            _ => return Err(self.unexpected(Wanted::Operand)),
        };
        self.take();
        Ok(self.make(at, Node::Literal(literal)))
    }

    fn name(&mut self, at: usize, name: &str) -> Parsed {
        self.take();
        let constant = match name {
            "true" => Some(Literal::Bool(true)),
            "false" => Some(Literal::Bool(false)),
            "null" => Some(Literal::Null),
            _ => None,
        };
        if let Some(constant) = constant {
            return Ok(self.make(at, Node::Literal(constant)));
        }
        if RESERVED.contains(&name) {
            return Err(SyntaxError::new(at, format!("reserved identifier: {name}")));
        }
        if self.sign("(") {
            let arguments = self.arguments()?;
            return macros::global(self, at, name, arguments);
        }
        Ok(self.make(at, Node::Ident(name.to_owned())))
    }

    /// Up to and with the closing parenthesis.
    fn arguments(&mut self) -> Result<Vec<Expr>, SyntaxError> {
        let mut arguments = Vec::new();
        while !self.sign(")") {
            arguments.push(self.expression()?);
            if !self.sign(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(arguments)
    }

    fn members(&mut self, mut of: Expr) -> Parsed {
        loop {
            self.not_too_high(&of)?;
            let at = self.at();
            if self.sign(".") {
                let optional = self.sign("?");
                of = self.member(at, of, optional)?;
            } else if self.sign("[") {
                let optional = self.sign("?");
                let index = self.expression()?;
                self.expect("]")?;
                of = self.make(at, Node::Index { of: of.into(), index: index.into(), optional });
            } else if matches!(self.peek(), Token::Sign("{"))
                && let Some(name) = qualified(&of)
            {
                of = self.object(at, name)?;
            } else {
                return Ok(of);
            }
        }
    }

    fn member(&mut self, at: usize, of: Expr, optional: bool) -> Parsed {
        let (field, quoted) = match self.take() {
            Token::Ident(name) => (name, false),
            Token::Quoted(name) => (name, true),
            _ => {
                self.next -= 1;
                return Err(self.unexpected(Wanted::Other));
            }
        };
        if !quoted && !optional && self.sign("(") {
            let mut arguments = self.arguments()?;
            if let Some(library) = qualified(&of).filter(|name| is_library(name)) {
                return macros::global(self, at, &format!("{library}.{field}"), arguments);
            }
            if let Some(expanded) = macros::member(self, at, &of, &field, &mut arguments)? {
                return Ok(expanded);
            }
            arguments.insert(0, of);
            return Ok(self.make(at, Node::Call { function: field, member: true, arguments }));
        }
        if !quoted && matches!(field.as_str(), "in" | "true" | "false" | "null") {
            return Err(SyntaxError::new(at, format!("reserved identifier: {field}")));
        }
        Ok(self.make(at, Node::Select { of: of.into(), field, optional, test: false }))
    }

    fn list(&mut self, at: usize) -> Parsed {
        self.take();
        let mut entries = Vec::new();
        while !self.sign("]") {
            let optional = self.sign("?");
            entries.push(Entry { optional, value: self.expression()? });
            if !self.sign(",") {
                self.expect("]")?;
                break;
            }
        }
        Ok(self.make(at, Node::List(entries)))
    }

    fn map(&mut self, at: usize) -> Parsed {
        self.take();
        let mut entries = Vec::new();
        while !self.sign("}") {
            let optional = self.sign("?");
            let key = self.expression()?;
            self.expect(":")?;
            entries.push(Entry { optional, value: (key, self.expression()?) });
            if !self.sign(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(self.make(at, Node::Map(entries)))
    }

    fn object(&mut self, at: usize, name: String) -> Parsed {
        self.take();
        let mut fields = Vec::new();
        while !self.sign("}") {
            let optional = self.sign("?");
            let (Token::Ident(field) | Token::Quoted(field)) = self.take() else {
                self.next -= 1;
                return Err(self.unexpected(Wanted::Other));
            };
            self.expect(":")?;
            fields.push(Entry { optional, value: (field, self.expression()?) });
            if !self.sign(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(self.make(at, Node::Object { name, fields }))
    }
}

fn is_library(name: &str) -> bool {
    LIBRARIES.contains(&name.split('.').next().unwrap_or_default())
}

/// The dotted name that an expression is, if it is one.
fn qualified(expr: &Expr) -> Option<String> {
    match &expr.node {
        Node::Ident(name) => Some(name.clone()),
        Node::Select { of, field, optional: false, test: false } => {
            Some(format!("{}.{field}", qualified(of)?))
        }
        _ => None,
    }
}
