//! Paths of printer columns: the part of kubectl's JSONPath that leads to values.
//! <https://kubernetes.io/docs/reference/kubectl/jsonpath/>

use serde_json::Value;

/// Steps deep into an object. Nothing that is absent is an error.
#[derive(Debug, PartialEq)]
pub(super) struct Path(Vec<Step>);

#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    /// `.*` and `[*]`
    Each,
    /// `..name`: wherever it is below.
    Below(String),
    /// `[2]`, `[-1]`
    Index(i64),
    /// `[0:4:2]`
    Slice(Option<i64>, Option<i64>, i64),
    /// `['a','b']`
    Union(Vec<String>),
    /// `[?(@.type=="Ready")]`
    Filter(Operand, Option<(Comparison, Operand)>),
}

#[derive(Debug, PartialEq)]
enum Operand {
    /// `@.a.b`
    Path(Path),
    Constant(Value),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

impl Path {
    /// `None` for what is no path.
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim();
        rest = rest.strip_prefix('$').or_else(|| rest.strip_prefix('@')).unwrap_or(rest);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = step(rest)?;
            steps.extend(step);
            rest = after;
        }
        Some(Self(steps))
    }

    /// The first value that the path leads to.
    pub fn first<'v>(&self, object: &'v Value) -> Option<&'v Value> {
        self.all(object).first().copied()
    }

    fn all<'v>(&self, object: &'v Value) -> Vec<&'v Value> {
        let mut values = vec![object];
        for step in &self.0 {
            values = values.into_iter().flat_map(|value| step.from(value)).collect();
        }
        values
    }
}

/// One step and what follows it; a lone dot is none.
fn step(text: &str) -> Option<(Option<Step>, &str)> {
    if let Some(rest) = text.strip_prefix("..") {
        let (name, rest) = name(rest);
        return (!name.is_empty()).then_some((Some(Step::Below(name)), rest));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let end = closing(rest)?;
        return Some((Some(bracket(rest[..end].trim())?), &rest[end + 1..]));
    }
    let rest = text.strip_prefix('.').unwrap_or(text);
    if let Some(rest) = rest.strip_prefix('*') {
        return Some((Some(Step::Each), rest));
    }
    if rest.is_empty() || rest.starts_with('[') {
        return (text.len() > rest.len()).then_some((None, rest));
    }
    let (name, rest) = name(rest);
    (!name.is_empty()).then_some((Some(Step::Field(name)), rest))
}

/// Up to the next dot or bracket that no backslash stands before.
fn name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '\\' if !escaped => escaped = true,
            '.' | '[' if !escaped => return (name, &text[at..]),
            c => {
                name.push(c);
                escaped = false;
            }
        }
    }
    (name, "")
}

/// Where the bracket ends that is already open; quotes hide what is in them.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0usize, None);
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

fn bracket(inner: &str) -> Option<Step> {
    if inner == "*" {
        return Some(Step::Each);
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        return filter_of(filter.trim());
    }
    if inner.starts_with(['\'', '"']) {
        let names: Option<Vec<String>> = inner.split(',').map(|name| quoted(name.trim())).collect();
        return names.map(Step::Union);
    }
    if inner.contains(':') {
        let mut parts = inner.split(':').map(|part| match part.trim() {
            "" => Some(None),
            number => number.parse().ok().map(Some),
        });
        let (from, to) = (parts.next()??, parts.next()??);
        let by = parts.next().unwrap_or(Some(None))?.unwrap_or(1);
        return (by > 0 && parts.next().is_none()).then_some(Step::Slice(from, to, by));
    }
    inner.parse().ok().map(Step::Index)
}

fn quoted(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    Some(inner.replace("\\'", "'").replace("\\\"", "\"").replace("\\.", "."))
}

fn filter_of(text: &str) -> Option<Step> {
    let at = |sign: &str| outside_quotes(text).find(|at| text[*at..].starts_with(sign));
    let sign = COMPARISONS.iter().find_map(|(sign, comparison)| Some((at(sign)?, sign.len(), *comparison)));
    match sign {
        None => Some(Step::Filter(operand(text)?, None)),
        Some((at, length, comparison)) => {
            let (left, right) = (operand(text[..at].trim())?, operand(text[at + length..].trim())?);
            Some(Step::Filter(left, Some((comparison, right))))
        }
    }
}

/// Places in the text that no quote hides.
fn outside_quotes(text: &str) -> impl Iterator<Item = usize> {
    let mut quote = None;
    text.char_indices().filter_map(move |(at, c)| match (quote, c) {
        (Some(open), c) if c == open => {
            quote = None;
            None
        }
        (Some(_), _) => None,
        (None, '\'' | '"') => {
            quote = Some(c);
            None
        }
        (None, _) => Some(at),
    })
}

fn operand(text: &str) -> Option<Operand> {
    if text.starts_with(['@', '$']) {
        return Path::parse(text).map(Operand::Path);
    }
    if let Some(text) = quoted(text) {
        return Some(Operand::Constant(text.into()));
    }
    match text {
        "true" | "false" => Some(Operand::Constant((text == "true").into())),
        _ => serde_json::from_str(text).ok().filter(Value::is_number).map(Operand::Constant),
    }
}

impl Step {
    fn from<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Each => children(value).collect(),
            Self::Below(name) => below(value, name),
            Self::Index(index) => value.as_array().and_then(|list| at(list, *index)).into_iter().collect(),
            Self::Slice(from, to, by) => slice(value, *from, *to, *by),
            Self::Union(names) => names.iter().filter_map(|name| value.get(name)).collect(),
            Self::Filter(left, right) => {
                children(value).filter(|item| holds(item, left, right.as_ref())).collect()
            }
        }
    }
}

fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(list) => Box::new(list.iter()),
        Value::Object(map) => Box::new(map.values()),
        _ => Box::new(std::iter::empty()),
    }
}

fn below<'v>(value: &'v Value, name: &str) -> Vec<&'v Value> {
    let mut found: Vec<&Value> = value.get(name).into_iter().collect();
    found.extend(children(value).flat_map(|child| below(child, name)));
    found
}

fn at(list: &[Value], index: i64) -> Option<&Value> {
    let length = i64::try_from(list.len()).ok()?;
    let index = if index < 0 { index + length } else { index };
    list.get(usize::try_from(index).ok()?)
}

fn slice(value: &Value, from: Option<i64>, to: Option<i64>, by: i64) -> Vec<&Value> {
    let Some(list) = value.as_array() else { return Vec::new() };
    let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
    let place = |index: i64| (if index < 0 { index + length } else { index }).clamp(0, length);
    let (from, to) = (place(from.unwrap_or(0)), place(to.unwrap_or(length)));
    let by = usize::try_from(by).unwrap_or(1);
    (from..to).step_by(by).filter_map(|index| at(list, index)).collect()
}

fn holds(item: &Value, left: &Operand, right: Option<&(Comparison, Operand)>) -> bool {
    let value = |operand: &Operand| match operand {
        Operand::Path(path) => path.first(item).cloned(),
        Operand::Constant(constant) => Some(constant.clone()),
    };
    let Some((comparison, right)) = right else { return value(left).is_some() };
    let (Some(left), Some(right)) = (value(left), value(right)) else { return false };
    let order = match (&left, &right) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (a, b) if a == b => Some(std::cmp::Ordering::Equal),
        _ => None,
    };
    match comparison {
        Comparison::Equal => order.is_some_and(std::cmp::Ordering::is_eq),
        Comparison::NotEqual => !order.is_some_and(std::cmp::Ordering::is_eq),
        Comparison::Less => order.is_some_and(std::cmp::Ordering::is_lt),
        Comparison::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
        Comparison::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
        Comparison::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
    }
}
