//! What an expression says, with its macros already expanded into nodes of their own.

/// Numbers the nodes of one expression from 0.
pub type Id = usize;

#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    pub id: Id,
    /// Byte offset in the source, where an error message points.
    pub at: usize,
    pub node: Node,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    Literal(Literal),
    Ident(String),
    /// `of.field`, `of.?field`; `test` for `has(of.field)`.
    Select {
        of: Box<Expr>,
        field: String,
        optional: bool,
        test: bool,
    },
    /// `of[index]`, `of[?index]`
    Index {
        of: Box<Expr>,
        index: Box<Expr>,
        optional: bool,
    },
    /// Operators have the names of cel-go, `_+_`; the receiver of a member call is the first argument.
    Call {
        function: String,
        member: bool,
        arguments: Vec<Expr>,
    },
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Choice(Box<Expr>, Box<Expr>, Box<Expr>),
    List(Vec<Entry<Expr>>),
    Map(Vec<Entry<(Expr, Expr)>>),
    /// `Object.spec{replicas: 3}`
    Object {
        name: String,
        fields: Vec<Entry<(String, Expr)>>,
    },
    Fold(Box<Fold>),
    /// `of.optMap(name, body)`; `flat` for `optFlatMap`.
    Lift {
        of: Box<Expr>,
        name: String,
        body: Box<Expr>,
        flat: bool,
    },
    /// `cel.bind(name, value, body)`
    Bind {
        name: String,
        value: Box<Expr>,
        body: Box<Expr>,
    },
}

impl Expr {
    /// The parts directly below.
    pub fn parts(&self) -> Vec<&Expr> {
        match &self.node {
            Node::Literal(_) | Node::Ident(_) => Vec::new(),
            Node::Select { of, .. } => vec![of],
            Node::Index { of, index, .. } => vec![of, index],
            Node::Call { arguments, .. } => arguments.iter().collect(),
            Node::And(a, b) | Node::Or(a, b) => vec![a, b],
            Node::Choice(a, b, c) => vec![a, b, c],
            Node::List(entries) => entries.iter().map(|entry| &entry.value).collect(),
            Node::Map(entries) => entries.iter().flat_map(|entry| [&entry.value.0, &entry.value.1]).collect(),
            Node::Object { fields, .. } => fields.iter().map(|field| &field.value.1).collect(),
            Node::Fold(fold) => [&fold.range, &fold.body].into_iter().chain(&fold.filter).collect(),
            Node::Lift { of, body, .. } => vec![of, body],
            Node::Bind { value, body, .. } => vec![value, body],
        }
    }
}

/// An element that is left out when it is an empty optional: `[?x]`, `{?"k": x}`.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<T> {
    pub optional: bool,
    pub value: T,
}

/// A macro that goes through a list or a map.
#[derive(Clone, Debug, PartialEq)]
pub struct Fold {
    pub kind: FoldKind,
    pub range: Expr,
    /// The element, or with a `second` variable the index or key.
    pub first: String,
    pub second: Option<String>,
    pub filter: Option<Expr>,
    pub body: Expr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoldKind {
    All,
    Exists,
    ExistsOne,
    Filter,
    /// `map` and `transformList`
    List,
    /// `transformMap`
    Map,
    /// `transformMapEntry`
    MapEntry,
}
