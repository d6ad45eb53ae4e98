//! `x-kubernetes-validations`: the rules of a schema, compiled once, held against every object.

mod run;

use crate::check::Env;
use crate::declare::{declare, most_in_a_request};
use crate::estimate::Sizes;
use crate::sizes::Shape;
use crate::types::Type;
use crate::{Issues, Program};
use coracle_api::FieldError;
use coracle_api::schema::ListType;
use coracle_api::structural::{Rule, Structural, field_path};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// Upstream's limits: of one rule as estimated, of all rules of a definition, of one run, of one object.
pub const RULE_ESTIMATE: u64 = 10_000_000;
pub const TOTAL_ESTIMATE: u64 = 100_000_000;
pub const RUN_LIMIT: u64 = 1_000_000;
pub const OBJECT_LIMIT: u64 = 10_000_000;
/// A rule ready to run.
#[derive(Debug)]
struct Compiled {
    rule: Rule,
    check: Program,
    message: Option<Program>,
    /// Compares with what was before, so that it holds for updates only.
    transition: bool,
    /// The field that is to be named, below the place of the rule; empty for the place itself.
    field: String,
}

/// The rules at one place of a schema and below it.
#[derive(Debug, Default)]
pub struct Rules {
    own: Vec<Compiled>,
    /// What `self` is here.
    of: Option<Type>,
    /// The schema's `type`, which messages show in place of a structure.
    kind: &'static str,
    properties: BTreeMap<String, Rules>,
    additional: Option<Box<Rules>>,
    items: Option<Box<Rules>>,
    list_type: Option<ListType>,
    list_map_keys: Vec<String>,
}

/// Compiles all rules of a schema that has been accepted. What they cost was judged then.
///
/// # Errors
/// Every rule that has no sense, with its place below `path`.
pub fn compile(schema: &Structural, path: &str) -> Result<Rules, Vec<FieldError>> {
    let mut compiler = Compiler { errors: Vec::new(), judge: None };
    let rules = compiler.visit(schema, path, &Place { root: true, count: Some(1), apart: None });
    if compiler.errors.is_empty() { Ok(rules.unwrap_or_default()) } else { Err(compiler.errors) }
}

/// What is wrong with the rules of a new schema: those that have no sense, and those that could cost too much.
pub fn check(schema: &Structural, path: &str) -> Vec<FieldError> {
    let judge = Judge { total: 0, dearest: Vec::new() };
    let mut compiler = Compiler { errors: Vec::new(), judge: Some(judge) };
    compiler.visit(schema, path, &Place { root: true, count: Some(1), apart: None });
    let mut errors = compiler.errors;
    if let Some(judge) = compiler.judge.filter(|judge| judge.total > TOTAL_ESTIMATE) {
        for (place, _) in &judge.dearest {
            let detail =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(FieldError::forbidden(place.as_str(), detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(path, &over(what, judge.total, TOTAL_ESTIMATE)));
    }
    errors
}

#[allow(clippy::cast_precision_loss, reason = "a factor to show")]
fn over(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let shown = match factor {
        f if f > 100.0 => "more than 100x".to_owned(),
        f if f < 1.5 => format!("{f:.6}x"),
        f => format!("{f:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// Adds up what the rules of a schema cost.
struct Judge {
    total: u64,
    /// The dearest that take a hundredth of the limit or more, dearest first.
    dearest: Vec<(String, u64)>,
}

/// How many of the dearest are named.
const NAMED: usize = 4;

impl Judge {
    fn observe(&mut self, place: String, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost >= TOTAL_ESTIMATE / 100 {
            self.dearest.push((place, cost));
            self.dearest.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.dearest.truncate(NAMED);
        }
    }
}

struct Compiler {
    errors: Vec<FieldError>,
    judge: Option<Judge>,
}

/// Where in a schema rules stand.
#[derive(Clone)]
struct Place {
    root: bool,
    /// How often a value can stand here; `None` when nothing bounds it.
    count: Option<u64>,
    /// The list whose elements cannot be told from one another over an update, so that no rule below it may ask for
    /// what was before.
    apart: Option<String>,
}

/// What bounds the cost of a rule: how often it can run, and on what.
#[derive(Clone, Copy)]
struct Bounds<'s> {
    times: u64,
    sizes: Sizes<'s>,
}

impl Place {
    /// Below a list or a map of at most `most` elements.
    fn within(&self, most: Option<u64>) -> Self {
        let count = self.count.zip(most).map(|(count, most)| count.saturating_mul(most));
        Self { root: false, count, apart: self.apart.clone() }
    }
}

impl Compiler {
    fn visit(&mut self, schema: &Structural, path: &str, place: &Place) -> Option<Rules> {
        let keyed = schema.list_type == Some(ListType::Map);
        let field = Place { root: false, ..place.clone() };
        let properties: BTreeMap<String, Rules> = schema
            .properties
            .iter()
            .filter_map(|(name, part)| {
                Some((name.clone(), self.visit(part, &format!("{path}.properties[{name}]"), &field)?))
            })
            .collect();
        let items = schema.items.as_deref().and_then(|part| {
            let mut element = place.within(schema.keywords.max_items);
            if !keyed && element.apart.is_none() {
                element.apart = Some(path.to_owned());
            }
            self.visit(part, &format!("{path}.items"), &element).map(Box::new)
        });
        let additional = schema.additional.as_deref().and_then(|part| {
            let value = place.within(schema.keywords.max_properties);
            self.visit(part, &format!("{path}.additionalProperties"), &value).map(Box::new)
        });
        let of = if schema.rules.is_empty() { None } else { Some(declare(schema, place.root)) };
        let own: Vec<Compiled> = match &of {
            Some(of) => self.own(schema, of, path, place),
            None => Vec::new(),
        };
        if own.is_empty() && properties.is_empty() && items.is_none() && additional.is_none() {
            return None;
        }
        let kind = schema.kind.map_or("", coracle_api::structural::JsonType::name);
        let (list_type, list_map_keys) = (schema.list_type, schema.list_map_keys.clone());
        Some(Rules { own, of, kind, properties, additional, items, list_type, list_map_keys })
    }

    fn own(&mut self, schema: &Structural, of: &Type, path: &str, place: &Place) -> Vec<Compiled> {
        let times = place.count.unwrap_or_else(|| most_in_a_request(schema));
        let shape = self.judge.is_some().then(|| Shape::of(schema));
        let sizes = Sizes { variables: shape.as_ref(), anywhere: true };
        let rules = schema.rules.iter().enumerate();
        rules
            .filter_map(|(index, rule)| {
                let here = format!("{path}.x-kubernetes-validations[{index}]");
                let compiled = self.rule(rule, of, &here, Bounds { times, sizes }, place.apart.as_deref())?;
                Some(Compiled { field: named(&rule.field_path, schema), ..compiled })
            })
            .collect()
    }

    fn rule(
        &mut self,
        rule: &Rule,
        of: &Type,
        path: &str,
        bounds: Bounds<'_>,
        apart: Option<&str>,
    ) -> Option<Compiled> {
        let old = if rule.optional_old_self { Type::optional(of.clone()) } else { of.clone() };
        let env = Env::default().variable("self", of.clone()).variable("oldSelf", old);
        let at_rule = format!("{path}.rule");
        let check = match program(&rule.rule, &env, &Type::Bool) {
            Ok(check) => Some(check),
            Err(detail) => {
                self.errors.push(shown(rule, at_rule.clone(), &detail.to_string()));
                None
            }
        };
        if let Some(check) = &check {
            let cost = || check.cost(bounds.sizes).saturating_mul(bounds.times);
            self.judge_cost(&at_rule, "estimated rule cost", cost);
        }
        let message = self.message(rule, &env, path, bounds.sizes);
        let check = check?;
        let mentions = check.mentions("oldSelf");
        if let (true, Some(list)) = (mentions, apart) {
            let detail =
                format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
            self.errors.push(FieldError::invalid(at_rule, &Json::from(rule.rule.as_str()), &detail));
        }
        if rule.optional_old_self && !mentions {
            let detail = "may not be set if oldSelf is not used in rule";
            self.errors.push(FieldError::invalid(
                format!("{path}.optionalOldSelf"),
                &Json::Bool(true),
                detail,
            ));
        }
        Some(Compiled { rule: rule.clone(), check, message, transition: mentions, field: String::new() })
    }

    fn message(&mut self, rule: &Rule, env: &Env, path: &str, sizes: Sizes<'_>) -> Option<Program> {
        let source = rule.message_expression.trim();
        if source.is_empty() {
            return None;
        }
        let here = format!("{path}.messageExpression");
        match program(source, env, &Type::STRING) {
            Ok(message) => {
                self.judge_cost(&here, "estimated messageExpression cost", || message.cost(sizes));
                Some(message)
            }
            Err(mistake) => {
                let detail = match mistake {
                    ProgramError::Compile(_) => format!("messageExpression {mistake}"),
                    ProgramError::Result { wanted } => {
                        format!("messageExpression must evaluate to a {wanted}")
                    }
                };
                self.errors.push(shown(rule, here, &detail));
                None
            }
        }
    }

    fn judge_cost(&mut self, place: &str, what: &str, cost: impl Fn() -> u64) {
        let Some(judge) = &mut self.judge else { return };
        let cost = cost();
        judge.observe(place.to_owned(), cost);
        if cost > RULE_ESTIMATE {
            self.errors.push(FieldError::forbidden(place, &over(what, cost, RULE_ESTIMATE)));
        }
    }
}

/// The error of a rule, shown whole as upstream's type of it is written.
fn shown(rule: &Rule, path: String, detail: &str) -> FieldError {
    // As the only element of a list, text is written as it is within a structure.
    let text = |text: &str| {
        let list = coracle_api::shown(&Json::from(vec![text]));
        list[1..list.len() - 1].to_owned()
    };
    let reason = if rule.reason.is_empty() { "null".to_owned() } else { text(&rule.reason) };
    let optional = if rule.optional_old_self { "true" } else { "null" };
    let whole = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{reason},\"FieldPath\":{},\
         \"OptionalOldSelf\":{optional}}}",
        text(&rule.rule),
        text(&rule.message),
        text(&rule.message_expression),
        text(&rule.field_path)
    );
    FieldError::invalid_as(path, &whole, detail)
}

/// The field that a `fieldPath` names, as paths in errors are written. One that leads nowhere has been refused.
fn named(path: &str, schema: &Structural) -> String {
    let steps = field_path::follow(path, schema, true).map(|(steps, _)| steps).unwrap_or_default();
    field_path::shown(&steps)
}

/// Why an expression makes no program, in upstream's words.
#[derive(Debug, thiserror::Error)]
enum ProgramError {
    // The words of a field's mistake, which has no sources: they are one with it.
    #[error("compilation failed: {0}")]
    Compile(Issues),
    #[error("cel expression must evaluate to a {wanted}")]
    Result { wanted: &'static str },
}

fn program(source: &str, env: &Env, wanted: &Type) -> Result<Program, ProgramError> {
    let program = Program::compile(source, env).map_err(ProgramError::Compile)?;
    let fits = match (program.result(), wanted) {
        (Type::String(_), Type::String(_)) => true,
        (is, wanted) => is == wanted,
    };
    let name = if *wanted == Type::Bool { "bool" } else { "string" };
    if fits { Ok(program) } else { Err(ProgramError::Result { wanted: name }) }
}

impl Rules {
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.properties.is_empty() && self.items.is_none() && self.additional.is_none()
    }
}
