//! Kubernetes' authorizer library. What it answers comes from the host: an [`External`](crate::value::External).

use super::{Cost, Function};
use crate::error::EvalError;
use crate::value::Value;

macro_rules! asked {
    ($name:literal, $cost:expr, $($signature:literal),+) => {
        Function {
            name: $name,
            signatures: &[$($signature),+],
            run: |args| match &args[0] {
                Value::External(value) => value.call($name, &args[1..]),
                _ => Err(EvalError::NoOverload),
            },
            cost: $cost,
        }
    };
}

pub const FUNCTIONS: &[Function] = &[
    asked!(
        "path",
        Cost::Flat,
        "kubernetes.authorization.Authorizer.path(string): kubernetes.authorization.PathCheck"
    ),
    asked!(
        "group",
        Cost::Flat,
        "kubernetes.authorization.Authorizer.group(string): kubernetes.authorization.GroupCheck"
    ),
    asked!(
        "serviceAccount",
        Cost::Flat,
        "kubernetes.authorization.Authorizer.serviceAccount(string, string): kubernetes.authorization.Authorizer"
    ),
    asked!(
        "resource",
        Cost::Flat,
        "kubernetes.authorization.GroupCheck.resource(string): kubernetes.authorization.ResourceCheck"
    ),
    asked!(
        "subresource",
        Cost::Flat,
        "kubernetes.authorization.ResourceCheck.subresource(string): kubernetes.authorization.ResourceCheck"
    ),
    asked!(
        "namespace",
        Cost::Flat,
        "kubernetes.authorization.ResourceCheck.namespace(string): kubernetes.authorization.ResourceCheck"
    ),
    asked!(
        "name",
        Cost::Flat,
        "kubernetes.authorization.ResourceCheck.name(string): kubernetes.authorization.ResourceCheck"
    ),
    asked!(
        "fieldSelector",
        Cost::Flat,
        "kubernetes.authorization.ResourceCheck.fieldSelector(string): kubernetes.authorization.ResourceCheck"
    ),
    asked!(
        "labelSelector",
        Cost::Flat,
        "kubernetes.authorization.ResourceCheck.labelSelector(string): kubernetes.authorization.ResourceCheck"
    ),
    asked!(
        "check",
        Cost::Authorize,
        "kubernetes.authorization.PathCheck.check(string): kubernetes.authorization.Decision",
        "kubernetes.authorization.ResourceCheck.check(string): kubernetes.authorization.Decision"
    ),
    asked!("allowed", Cost::Flat, "kubernetes.authorization.Decision.allowed(): bool"),
    asked!("reason", Cost::Flat, "kubernetes.authorization.Decision.reason(): string"),
    asked!("errored", Cost::Flat, "kubernetes.authorization.Decision.errored(): bool"),
    asked!("error", Cost::Flat, "kubernetes.authorization.Decision.error(): string"),
];
