//! What expressions that select devices may name (resource.k8s.io): `device.driver`, `device.attributes["domain"].name`,
//! `device.capacity["domain"].name`.

use crate::{Env, Field, ObjectType, Program, Type};
use std::collections::BTreeMap;
use std::sync::Arc;

pub fn environment() -> Env {
    let field = |name: &str, of: Type| (name.to_owned(), Field { json: name.to_owned(), of });
    let by_domain = |of: Type| Type::map(Type::STRING, Type::map(Type::STRING, of));
    let device = ObjectType {
        name: "DRADevice".to_owned(),
        fields: BTreeMap::from([
            field("driver", Type::STRING),
            field("attributes", by_domain(Type::Dyn)),
            field("capacity", by_domain(Type::Dyn)),
            field("allowMultipleAllocations", Type::Bool),
        ]),
    };
    Env::default().variable("device", Type::Object(Arc::new(device)))
}

/// Why an expression selects no devices, in upstream's words; it has to be a bool, or what may turn out to be one.
pub fn mistake(source: &str) -> Option<String> {
    match Program::compile(source, &environment()) {
        Err(issues) => Some(format!("compilation failed: {issues}")),
        Ok(program) => match program.result() {
            Type::Bool | Type::Dyn => None,
            other => Some(format!("must evaluate to bool or the unknown type, not {other}")),
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
        assert_eq!(
            mistake("device.driver").as_deref(),
            Some("must evaluate to bool or the unknown type, not string")
        );
        for bad in ["", "device.nothing == 1", "driver == \"x\"", "device.driver =="] {
            assert!(mistake(bad).is_some_and(|why| why.starts_with("compilation failed: ERROR")), "{bad}");
        }
    }
}
