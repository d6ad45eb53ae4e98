//! What expressions that select devices may name (resource.k8s.io): `device.driver`, `device.attributes["domain"].name`,
//! `device.capacity["domain"].name`.

use crate::sizes::Shape;
use crate::{Env, Field, MapType, ObjectType, Program, Sizes, Type};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a selector may cost: as estimated when it is written, and when it runs. Upstream's number.
pub const MOST_COST: u64 = 1_000_000;

/// Upstream's limits, from which the estimate follows: bytes of a driver's name, of a domain, of a name within it, of an
/// attribute's value; attributes and capacities of a device together.
const DRIVER_MAX: usize = 63;
const DOMAIN_MAX: usize = 63;
pub const ID_MAX: usize = 32;
pub const VALUE_MAX: usize = 64;
pub const NAMES_MAX: usize = 32;

pub fn environment() -> Env {
    let field = |name: &str, of: Type| (name.to_owned(), Field { json: name.to_owned(), of });
    let map = |key: usize, value: Type| {
        let key = Type::String(Some(key as u64));
        Type::Map(Arc::new(MapType { key, value, max_properties: Some(NAMES_MAX as u64) }))
    };
    let by_domain = |of: Type| map(DOMAIN_MAX, map(ID_MAX, of));
    let device = ObjectType {
        name: "kubernetes.DRADevice".to_owned(),
        fields: BTreeMap::from([
            field("driver", Type::String(Some(DRIVER_MAX as u64))),
            field("attributes", by_domain(Type::Dyn)),
            field("capacity", by_domain(Type::Opaque("kubernetes.Quantity"))),
            field("allowMultipleAllocations", Type::Bool),
        ]),
    };
    let env = Env::default().with_bindings();
    env.variable("device", Type::Object(Arc::new(device)))
}

/// The sizes of a device's parts. Capacities are numbers.
fn shape() -> Shape {
    let map = |key: usize, value: Shape, named: bool| {
        Shape::map(NAMES_MAX as u64, Shape::leaf(key as u64), value, named)
    };
    let attributes = map(ID_MAX, Shape::leaf(VALUE_MAX as u64), true);
    Shape::fields([
        ("driver", Shape::leaf(DRIVER_MAX as u64)),
        ("attributes", map(DOMAIN_MAX, attributes, false)),
        ("capacity", map(DOMAIN_MAX, map(ID_MAX, Shape::default(), false), false)),
        ("allowMultipleAllocations", Shape::leaf(1)),
    ])
}

fn cost(program: &Program) -> u64 {
    program.cost(Sizes { variables: Some(&shape()), anywhere: false })
}

/// Why an expression may not select devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// It makes no sense; in upstream's words.
    Invalid(String),
    /// It could cost more than [`MOST_COST`].
    TooComplex,
}

/// What is wrong with an expression: it has to be a bool, or what may turn out to be one.
pub fn mistake(source: &str) -> Option<Mistake> {
    match Program::compile(source, &environment()) {
        Err(issues) => Some(Mistake::Invalid(format!("compilation failed: {issues}"))),
        Ok(program) => match program.result() {
            Type::Bool | Type::Dyn => (cost(&program) > MOST_COST).then_some(Mistake::TooComplex),
            other => {
                let why = format!("must evaluate to bool or the unknown type, not {other}");
                Some(Mistake::Invalid(why))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_bools_over_a_device() {
        for good in [
            r#"device.driver == "gpu.example.com""#,
            r#"device.attributes["gpu.example.com"].model == "x" && device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("1Gi"))"#,
            r#"device.attributes["gpu.example.com"].healthy"#,
            "device.allowMultipleAllocations",
        ] {
            assert_eq!(mistake(good), None, "{good}");
        }
        let invalid = |source: &str| match mistake(source) {
            Some(Mistake::Invalid(why)) => why,
            other => panic!("{source}: {other:?}"),
        };
        assert_eq!(invalid("device.driver"), "must evaluate to bool or the unknown type, not string");
        for bad in
            ["", "device.nothing == 1", "driver == \"x\"", "device.driver ==", "device.capacity['d'].m > 3"]
        {
            assert!(invalid(bad).starts_with("compilation failed: ERROR"), "{bad}");
        }
    }

    /// The limit of an attribute's value is none of what an expression brings itself.
    #[test]
    fn what_hides_its_type_keeps_its_size() {
        let text = "x".repeat(1000);
        let cost = |source: &str| cost(&Program::compile(source, &environment()).unwrap());
        let plain = cost(&format!("'{text}'.matches('[^a]?sym')"));
        assert_eq!(cost(&format!("dyn('{text}').matches('[^a]?sym')")), plain + 1);
        assert_eq!(plain, 202);
    }

    /// Figures of upstream's tests.
    #[test]
    fn estimates_are_upstreams() {
        const ATTRIBUTE: &str = "device.attributes['dra.example.com']";
        const CAPACITY: &str = "device.capacity['dra.example.com']";
        for (source, wanted) in [
            ("true".to_owned(), 0),
            ("'no-such-domain' in device.attributes".to_owned(), 3),
            ("device.driver == ''".to_owned(), 2),
            ("device.driver == 'dra.example.com'".to_owned(), 4),
            (format!("{ATTRIBUTE}.name"), 4),
            (format!("{ATTRIBUTE}['name']"), 4),
            (format!("cel.bind(dra, {ATTRIBUTE}, dra.name)"), 15),
            (format!("{ATTRIBUTE}.name > 0"), 5),
            (format!("{ATTRIBUTE}.name == 'fish'"), 5),
            (format!("{ATTRIBUTE}.name.isGreaterThan(semver('0.0.1'))"), 6),
            (format!("{CAPACITY}.name.isGreaterThan(quantity('1Ki'))"), 6),
            (format!("!('name' in {CAPACITY}) || {CAPACITY}.name.isGreaterThan(quantity('1Ki'))"), 11),
            ("device.attributes.exists_one(x, x == 'dra.example.com')".to_owned(), 164),
            (format!("{ATTRIBUTE}.exists_one(x, x == 'services')"), 133),
            (format!("{ATTRIBUTE}.services.split('example').size() >= 2"), 19),
            (format!("{ATTRIBUTE}.services.matches('[^a]?sym')"), 18),
            ("device.allowMultipleAllocations == true".to_owned(), 3),
        ] {
            assert_eq!(cost(&Program::compile(&source, &environment()).unwrap()), wanted, "{source}");
            assert_eq!(mistake(&source), None, "{source}");
        }
        let list = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
        let deep = ["a", "b", "c", "d", "e", "f", "g"]
            .iter()
            .fold("int('1'.find('[0-9]*')) < 100".to_owned(), |body, name| {
                format!("{list}.all({name}, {body})")
            });
        assert_eq!(mistake(&deep), Some(Mistake::TooComplex));
    }
}
