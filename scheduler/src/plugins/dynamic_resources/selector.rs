//! CEL selectors over devices: `device.driver`, `device.attributes["domain"].name`, `device.capacity["domain"].name`.

use super::devices::Device;
use coracle_api::quantity::Quantity;
use coracle_cel::devices::{self, MOST_COST};
use coracle_cel::value::Library;
use coracle_cel::{Budget, Env, Program, Type, Value};
use serde_json::Value as Json;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

/// Compiled expressions, kept: claims of one workload repeat theirs.
#[derive(Default)]
pub struct CompiledSelectors {
    compiled: HashMap<String, Result<Arc<Program>, String>>,
}

fn attribute<'a>(value: &Json) -> Option<Value<'a>> {
    let (kind, value) = value.as_object()?.iter().next()?;
    match kind.as_str() {
        "int" => value.as_i64().map(Value::Int),
        "bool" => value.as_bool().map(Value::Bool),
        "string" => value.as_str().map(Value::text),
        "version" => version(value.as_str()?),
        _ => None,
    }
}

/// The library makes versions; it is asked in its own language.
fn version<'a>(text: &str) -> Option<Value<'a>> {
    static SEMVER: LazyLock<Option<Program>> = LazyLock::new(|| {
        let environment = Env::default().variable("text", Type::STRING);
        Program::compile("semver(text)", &environment).ok()
    });
    let program = SEMVER.as_ref()?;
    let made = program.eval(&[("text", Value::text(text))], &mut Budget::of(MOST_COST)).ok()?;
    if let Value::Library(library) = made { Some(Value::Library(library)) } else { None }
}

fn capacity<'a>(value: &Json) -> Option<Value<'a>> {
    let quantity: Quantity = value["value"].as_str()?.parse().ok()?;
    Some(Value::library(Library::Quantity(quantity)))
}

/// Names by domain; a name without one belongs to the driver, and of a domain that the device does not know it has none.
fn by_domain<'a>(driver: &str, values: &Json, read: impl Fn(&Json) -> Option<Value<'a>>) -> Value<'a> {
    let mut domains: BTreeMap<&str, Vec<(Value<'a>, Value<'a>)>> = BTreeMap::new();
    for (name, value) in values.as_object().into_iter().flatten() {
        let (domain, short) = name.split_once('/').unwrap_or((driver, name));
        if let Some(value) = read(value) {
            domains.entry(domain).or_default().push((Value::text(short), value));
        }
    }
    let entries = domains.into_iter().map(|(d, entries)| (Value::text(d), Value::map(entries)));
    Value::defaulted_map(entries.collect())
}

fn variable<'a>(device: &Device) -> Value<'a> {
    let (driver, value) = (device.id.driver.as_str(), device.value());
    Value::map(vec![
        (Value::text("driver"), Value::text(driver)),
        (Value::text("attributes"), by_domain(driver, &value["attributes"], attribute)),
        (Value::text("capacity"), by_domain(driver, &value["capacity"], capacity)),
        (Value::text("allowMultipleAllocations"), Value::Bool(value["allowMultipleAllocations"] == true)),
    ])
}

impl CompiledSelectors {
    /// Whether the device satisfies every selector of a list (`[{cel: {expression}}]`). An error is the fault of who has
    /// the list, which `owner` names, and of no device: upstream's words for it.
    pub fn match_all(
        &mut self,
        owner: impl Fn() -> String,
        selectors: &Json,
        device: &Device,
    ) -> Result<bool, String> {
        for (index, selector) in selectors.as_array().into_iter().flatten().enumerate() {
            let told = |why: String| format!("{}: selector #{index}: {why}", owner());
            let Some(expression) = selector["cel"]["expression"].as_str() else {
                return Err(told("unsupported selector type, only CEL is".to_owned()));
            };
            if !self.matches(expression, device).map_err(told)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn matches(&mut self, expression: &str, device: &Device) -> Result<bool, String> {
        let compiled = self.compiled.entry(expression.to_owned()).or_insert_with(|| {
            let program = Program::compile(expression, &devices::environment());
            program.map(Arc::new).map_err(|error| format!("CEL compile error: {error}"))
        });
        let program = compiled.clone()?;
        let variables = [("device", variable(device))];
        match program.eval(&variables, &mut Budget::of(MOST_COST)) {
            Ok(Value::Bool(matches)) => Ok(matches),
            Ok(other) => Err(format!("CEL runtime error: must be a bool, is {}", other.type_name())),
            Err(error) => Err(format!("CEL runtime error: {error}")),
        }
    }
}
