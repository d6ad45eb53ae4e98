//! Match conditions: which questions a webhook is asked at all. They see the review's `spec` as `request`
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authorization/#using-configuration-file-for-authorization>).

use super::metrics::Metrics;
use coracle_api::FieldError;
use coracle_cel::{Budget, Env, Field, ObjectType, Program, Type, Value, typed};
use serde_json::Value as Json;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

/// Most conditions of one webhook, as upstream.
const MOST: usize = 64;

/// What all conditions of one question may cost together, in units of CEL's cost model: that of admission's match
/// conditions. Upstream sets no limit; conditions are the administrator's, their input is anybody's.
const BUDGET: u64 = 2_500_000;

fn object(name: &str, fields: &[(&str, Type)]) -> Type {
    let field =
        |(json, of): &(&str, Type)| ((*json).to_owned(), Field { json: (*json).to_owned(), of: of.clone() });
    Type::Object(Arc::new(ObjectType { name: name.to_owned(), fields: fields.iter().map(field).collect() }))
}

static SPEC: LazyLock<Type> = LazyLock::new(|| {
    let texts = Type::list(Type::STRING);
    let selector = |name: &str| {
        let requirement =
            object(name, &[("key", Type::STRING), ("operator", Type::STRING), ("values", texts.clone())]);
        [("rawSelector", Type::STRING), ("requirements", Type::list(requirement))]
    };
    let of_fields = selector("kubernetes.FieldSelectorRequirement");
    let of_labels = selector("kubernetes.LabelSelectorRequirement");
    let mut resource: Vec<(&str, Type)> =
        ["namespace", "verb", "group", "version", "resource", "subresource", "name"]
            .map(|field| (field, Type::STRING))
            .to_vec();
    resource.push(("fieldSelector", object("kubernetes.FieldSelectorAttributes", &of_fields)));
    resource.push(("labelSelector", object("kubernetes.LabelSelectorAttributes", &of_labels)));
    let other = [("path", Type::STRING), ("verb", Type::STRING)];
    object(
        "kubernetes.SubjectAccessReviewSpec",
        &[
            ("resourceAttributes", object("kubernetes.ResourceAttributes", &resource)),
            ("nonResourceAttributes", object("kubernetes.NonResourceAttributes", &other)),
            ("user", Type::STRING),
            ("groups", texts.clone()),
            ("extra", Type::map(Type::STRING, texts)),
            ("uid", Type::STRING),
        ],
    )
});

/// Compiled; none at all want everything.
#[derive(Debug, Default)]
pub struct Conditions(Vec<Program>);

/// `expressions` stand under `at` in the configuration. Every mistake of theirs is added to `mistakes`.
pub fn compile(at: &str, expressions: &[String], mistakes: &mut Vec<FieldError>) -> Conditions {
    if expressions.len() > MOST {
        mistakes.push(FieldError::too_many(at, expressions.len(), MOST));
        return Conditions::default();
    }
    let env = Env::default().variable("request", SPEC.clone());
    let mut programs = Vec::new();
    for (i, expression) in expressions.iter().enumerate() {
        let field = format!("{at}[{i}].expression");
        let invalid = |why: &str| FieldError::invalid(&*field, &expression.as_str().into(), why);
        if expression.trim().is_empty() {
            mistakes.push(FieldError::required(field, ""));
        } else if expressions[..i].contains(expression) {
            mistakes.push(FieldError::duplicate(field, &expression.as_str().into()));
        } else {
            match Program::compile(expression, &env) {
                Ok(program) if *program.result() == Type::Bool => programs.push(program),
                Ok(_) => mistakes.push(invalid("must evaluate to bool")),
                Err(issues) => mistakes.push(invalid(&format!("compilation failed: {issues}"))),
            }
        }
    }
    Conditions(programs)
}

impl Conditions {
    /// Whether the webhook called `name` is to be asked. One that is false decides, whatever the others say.
    ///
    /// # Errors
    /// Conditions that could not be evaluated, where none was false.
    pub fn want(&self, name: &str, spec: &Json, metrics: &Metrics) -> Result<bool, String> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let began = Instant::now();
        let wanted = self.evaluate(spec);
        metrics.conditions_took(name, began.elapsed());
        match &wanted {
            Ok(true) => {}
            Ok(false) => metrics.excluded(name),
            Err(_) => metrics.condition_failed(name),
        }
        wanted
    }

    fn evaluate(&self, spec: &Json) -> Result<bool, String> {
        let mut budget = Budget::of(BUDGET);
        let variables = [("request", typed(spec, &SPEC))];
        let mut errors = Vec::new();
        for program in &self.0 {
            match program.eval(&variables, &mut budget) {
                Ok(Value::Bool(true)) => {}
                Ok(Value::Bool(false)) => return Ok(false),
                Ok(_) => errors.push(format!("expression '{}' is no bool", program.source())),
                Err(why) => {
                    errors.push(format!("expression '{}' resulted in error: {why}", program.source()));
                }
            }
        }
        if errors.is_empty() { Ok(true) } else { Err(errors.join(", ")) }
    }
}
