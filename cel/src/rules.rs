//! `x-kubernetes-validations`: the rules of a schema, compiled once, held against every object.

use crate::Program;
use crate::check::Env;
use crate::declare::declare;
use crate::error::EvalError;
use crate::estimate::largest;
use crate::eval::Budget;
use crate::types::Type;
use crate::value::{Value, typed};
use coracle_api::FieldError;
use coracle_api::schema::ListType;
use coracle_api::structural::{Rule, Structural, join};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// Upstream's limits: of one rule as estimated, of all rules of a definition, of one run, of one object.
pub const RULE_ESTIMATE: u64 = 10_000_000;
pub const TOTAL_ESTIMATE: u64 = 100_000_000;
pub const RUN_LIMIT: u64 = 1_000_000;
pub const OBJECT_LIMIT: u64 = 10_000_000;
/// Longer messages of an expression are not shown.
const MESSAGE_BYTES: usize = 5 << 10;

/// A rule ready to run.
#[derive(Debug)]
struct Compiled {
    rule: Rule,
    check: Program,
    message: Option<Program>,
    /// Compares with what was before, so that it holds for updates only.
    transition: bool,
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
    list_map_keys: Option<Vec<String>>,
}

/// Compiles all rules of a schema.
///
/// # Errors
/// Every rule that has no sense or could cost too much, with its place below `path`.
pub fn compile(schema: &Structural, path: &str) -> Result<Rules, Vec<FieldError>> {
    let mut compiler = Compiler { errors: Vec::new(), total: 0 };
    let rules = compiler.visit(schema, path, true, Some(1), true);
    if compiler.total > TOTAL_ESTIMATE {
        #[allow(clippy::cast_precision_loss, reason = "a factor to show")]
        let factor = compiler.total as f64 / TOTAL_ESTIMATE as f64;
        compiler.errors.push(FieldError::forbidden(
            path,
            &format!(
                "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema {}",
                over(factor)
            ),
        ));
    }
    if compiler.errors.is_empty() { Ok(rules.unwrap_or_default()) } else { Err(compiler.errors) }
}

fn over(factor: f64) -> String {
    let shown = if factor > 100.0 { "more than 100x".to_owned() } else { format!("factor of {factor:.1}x") };
    format!(
        "exceeds budget by {shown} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where \
         arrays, maps, and strings are declared)"
    )
}

struct Compiler {
    errors: Vec<FieldError>,
    total: u64,
}

impl Compiler {
    /// `count`: how often a value can stand here; `None` when nothing bounds it. `same`: whether what was before can
    /// be found again, so that rules about changes make sense.
    fn visit(
        &mut self,
        schema: &Structural,
        path: &str,
        root: bool,
        count: Option<u64>,
        same: bool,
    ) -> Option<Rules> {
        let of = declare(schema, root);
        let elements = largest(&of);
        // How often an element of this place can stand in an object.
        let each = count.map(|count| count.saturating_mul(elements));
        let properties: BTreeMap<String, Rules> = schema
            .properties
            .iter()
            .filter_map(|(name, part)| {
                let here = format!("{path}.properties[{name}]");
                Some((name.clone(), self.visit(part, &here, false, count, same)?))
            })
            .collect();
        let keyed = schema.list_type == Some(ListType::Map);
        let items = schema.items.as_deref().and_then(|part| {
            self.visit(part, &format!("{path}.items"), false, each, same && keyed).map(Box::new)
        });
        let additional = schema.additional.as_deref().and_then(|part| {
            let here = format!("{path}.additionalProperties");
            self.visit(part, &here, false, each, same).map(Box::new)
        });
        let own: Vec<Compiled> = schema
            .rules
            .iter()
            .enumerate()
            .filter_map(|(index, rule)| {
                let here = format!("{path}.x-kubernetes-validations[{index}]");
                self.rule(rule, &of, &here, count, same)
            })
            .collect();
        if own.is_empty() && properties.is_empty() && items.is_none() && additional.is_none() {
            return None;
        }
        let kind = schema.kind.map_or("", coracle_api::structural::JsonType::name);
        let list_map_keys = keyed.then(|| schema.list_map_keys.clone());
        Some(Rules { own, of: Some(of), kind, properties, additional, items, list_map_keys })
    }

    fn rule(
        &mut self,
        rule: &Rule,
        of: &Type,
        path: &str,
        count: Option<u64>,
        same: bool,
    ) -> Option<Compiled> {
        let old = if rule.optional_old_self { Type::optional(of.clone()) } else { of.clone() };
        let env = Env::default().variable("self", of.clone()).variable("oldSelf", old);
        let before = self.errors.len();
        let check = self.program(&rule.rule, "rule", &env, &Type::Bool, path, count)?;
        let transition = check.mentions("oldSelf");
        if transition && !same {
            let detail = "oldSelf cannot be used on the uncorrelatable portion of the schema";
            self.errors.push(FieldError::invalid(
                format!("{path}.rule"),
                &Json::from(rule.rule.as_str()),
                detail,
            ));
        }
        if rule.optional_old_self && !transition {
            let detail = "may not be set if oldSelf is not used in rule";
            self.errors.push(FieldError::invalid(
                format!("{path}.optionalOldSelf"),
                &Json::Bool(true),
                detail,
            ));
        }
        let message = match rule.message_expression.trim() {
            "" => None,
            text => Some(self.program(text, "messageExpression", &env, &Type::STRING, path, count)?),
        };
        (self.errors.len() == before).then(|| Compiled { rule: rule.clone(), check, message, transition })
    }

    fn program(
        &mut self,
        source: &str,
        field: &str,
        env: &Env,
        wanted: &Type,
        path: &str,
        count: Option<u64>,
    ) -> Option<Program> {
        let (here, shown) = (format!("{path}.{field}"), Json::from(source));
        let program = match Program::compile(source, env) {
            Ok(program) => program,
            Err(issues) => {
                let what = if field == "rule" {
                    "compilation failed"
                } else {
                    "messageExpression compilation failed"
                };
                self.errors.push(FieldError::invalid(here, &shown, &format!("{what}: {issues}")));
                return None;
            }
        };
        if !program.result().fits(wanted, &mut BTreeMap::new()) {
            let detail = if field == "rule" {
                "cel expression must evaluate to a bool"
            } else {
                "messageExpression must evaluate to a string"
            };
            self.errors.push(FieldError::invalid(here, &shown, detail));
            return None;
        }
        let cost = program.cost().saturating_mul(count.unwrap_or(u64::MAX));
        self.total = self.total.saturating_add(cost);
        if cost > RULE_ESTIMATE {
            #[allow(clippy::cast_precision_loss, reason = "a factor to show")]
            let factor = cost as f64 / RULE_ESTIMATE as f64;
            let what =
                if field == "rule" { "estimated rule cost" } else { "estimated messageExpression cost" };
            self.errors.push(FieldError::forbidden(here, &format!("{what} {}", over(factor))));
            return None;
        }
        Some(program)
    }
}

impl Rules {
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.properties.is_empty() && self.items.is_none() && self.additional.is_none()
    }

    /// Every rule that an object breaks. Rules about what an update leaves as it was are not held against it.
    pub fn check(
        &self,
        value: &Json,
        old: Option<&Json>,
        path: &str,
        budget: &mut Budget,
    ) -> Vec<FieldError> {
        let mut errors = Vec::new();
        self.visit(value, old, path, budget, &mut errors);
        errors
    }

    fn visit(
        &self,
        value: &Json,
        old: Option<&Json>,
        path: &str,
        budget: &mut Budget,
        errors: &mut Vec<FieldError>,
    ) {
        if value.is_null() {
            return;
        }
        let unchanged = old == Some(value);
        for compiled in &self.own {
            if compiled.transition && old.is_none() && !compiled.rule.optional_old_self
                || unchanged && !compiled.transition
            {
                continue;
            }
            if let Some(error) = self.run(compiled, value, old, path, budget) {
                errors.push(error);
            }
            if budget.spent > budget.limit {
                return;
            }
        }
        match value {
            Json::Object(map) => {
                for (key, inner) in map {
                    if let Some(below) = self.properties.get(key).or(self.additional.as_deref()) {
                        below.visit(
                            inner,
                            old.and_then(|old| old.get(key)),
                            &join(path, key),
                            budget,
                            errors,
                        );
                    }
                }
            }
            Json::Array(items) => {
                let Some(below) = &self.items else { return };
                for (index, item) in items.iter().enumerate() {
                    below.visit(item, self.before(item, old), &format!("{path}[{index}]"), budget, errors);
                }
            }
            _ => {}
        }
    }

    /// The element of the old list with the same keys.
    fn before<'o>(&self, item: &Json, old: Option<&'o Json>) -> Option<&'o Json> {
        let keys = self.list_map_keys.as_ref()?;
        old?.as_array()?.iter().find(|known| keys.iter().all(|key| known.get(key) == item.get(key)))
    }

    fn run(
        &self,
        compiled: &Compiled,
        value: &Json,
        old: Option<&Json>,
        path: &str,
        budget: &mut Budget,
    ) -> Option<FieldError> {
        let of = self.of.as_ref().unwrap_or(&Type::Dyn);
        let old_self = match (compiled.rule.optional_old_self, old) {
            (false, old) => old.map_or(Value::Null, |old| typed(old, of)),
            (true, None) => Value::Optional(None),
            (true, Some(old)) => Value::some(typed(old, of)),
        };
        let variables = [("self", typed(value, of)), ("oldSelf", old_self)];
        let mut own = Budget::of(RUN_LIMIT);
        let outcome = compiled.check.eval(&variables, &mut own);
        budget.spent = budget.spent.saturating_add(own.spent);
        if budget.spent > budget.limit {
            let detail = "validation failed due to running out of cost budget, no further validation rules will be run";
            return Some(FieldError::invalid(path, &Json::from(self.kind), detail));
        }
        match outcome {
            Ok(Value::Bool(true)) => None,
            Ok(Value::Bool(false)) => {
                let message = compiled.message(&variables, budget);
                Some(self.broken(&compiled.rule, path, value, &message))
            }
            Ok(_) => Some(self.broken(&compiled.rule, path, value, "rule did not evaluate to a bool")),
            Err(EvalError::CostLimit) => {
                let detail = format!(
                    "call cost exceeds limit for rule: {}: no further validation rules will be run due to call cost \
                     exceeds limit for rule",
                    compiled.rule.rule
                );
                budget.spent = budget.limit.saturating_add(1);
                Some(FieldError::invalid(path, &Json::from(self.kind), &detail))
            }
            Err(error) => {
                let detail = format!("rule evaluation error: {error}: {}", compiled.rule.rule);
                Some(FieldError::invalid(path, &Json::from(self.kind), &detail))
            }
        }
    }

    /// The error that a rule asks for, where it asks for it.
    fn broken(&self, rule: &Rule, path: &str, value: &Json, message: &str) -> FieldError {
        let below = rule.field_path.trim();
        let field = match below.strip_prefix('.') {
            Some(rest) => join(path, rest),
            None if below.is_empty() => path.to_owned(),
            None => format!("{path}{below}"),
        };
        match rule.reason.as_str() {
            "FieldValueForbidden" => FieldError::forbidden(field, message),
            "FieldValueRequired" => FieldError::required(field, message),
            "FieldValueDuplicate" => FieldError::duplicate(field, &Json::from(self.kind)),
            _ => {
                let shown =
                    if value.is_object() || value.is_array() { Json::from(self.kind) } else { value.clone() };
                FieldError::invalid(field, &shown, message)
            }
        }
    }
}

impl Compiled {
    fn message<'a>(&'a self, variables: &[(&str, Value<'a>); 2], budget: &mut Budget) -> String {
        let plain = || match self.rule.message.trim() {
            "" => format!("failed rule: {}", self.rule.rule.trim()),
            message => message.to_owned(),
        };
        let Some(program) = &self.message else { return plain() };
        let mut own = Budget::of(RUN_LIMIT);
        let outcome = program.eval(variables, &mut own);
        budget.spent = budget.spent.saturating_add(own.spent);
        match outcome.as_ref().ok().and_then(Value::as_str).map(str::trim) {
            Some(text) if !text.is_empty() && text.len() <= MESSAGE_BYTES && !text.contains('\n') => {
                text.to_owned()
            }
            _ => plain(),
        }
    }
}
