//! PriorityLevelConfigurations.

use super::super::value::*;
use super::super::{
    Column, CreateStrategy, Env, ResourceFacts, StatusStrategy, TableConvertor, rules, table,
};
use super::defaults;
use super::entropy::{MAX_ENTROPY_BITS, entropy_bits};
use crate::Facts;
use coracle_api::{FieldError, Object};
use jiff::Timestamp;
use serde_json::Value;

pub struct PriorityLevelConfigurations;

/// Upstream's limit on the queues of one level; each costs memory.
const MOST_QUEUES: i64 = 10_000_000;
const EXEMPT: &str = "exempt";
/// Only conversion from an older version may set it, and takes it away again.
const ZERO_SHARES: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

impl ResourceFacts for PriorityLevelConfigurations {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for PriorityLevelConfigurations {
    fn defaults(&self, object: &mut Object) {
        let Some(spec) = at_mut(object, "spec") else { return };
        if let Some(exempt) = at_mut(spec, EXEMPT) {
            default(exempt, "nominalConcurrencyShares", 0);
            default(exempt, "lendablePercent", 0);
        }
        let Some(limited) = at_mut(spec, "limited") else { return };
        default(limited, "nominalConcurrencyShares", 30);
        default(limited, "lendablePercent", 0);
        if let Some(queuing) = at_mut(limited, "limitResponse.queuing") {
            default_number(queuing, "handSize", 8);
            default_number(queuing, "queues", 64);
            default_number(queuing, "queueLengthLimit", 50);
        }
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec");
        if at(object, "metadata.annotations").get(ZERO_SHARES).is_some() {
            let here = Path::root("metadata").field("annotations");
            errors.forbidden(&here, &format!("annotation '{ZERO_SHARES}' is forbidden"));
        }
        let spec = &object["spec"];
        let kind = str_at(spec, "type");
        if (name(object) == EXEMPT) != (kind == "Exempt") {
            let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
            errors.invalid(&path.field("type"), kind, detail);
        }
        match kind {
            "Exempt" => exempt(spec, &path, errors),
            "Limited" => limited(spec, &path, errors),
            _ => rules::one_of(spec, "type", &["Exempt", "Limited"], &path, errors),
        }
        mandatory(object, &path, errors);
        super::status(object, errors);
    }
}

impl StatusStrategy for PriorityLevelConfigurations {
    fn status_keeps_metadata(&self) -> bool {
        true
    }

    fn validate_status_update(&self, new: &Object, _old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        super::status(new, &mut Errors(errors));
    }
}

impl TableConvertor for PriorityLevelConfigurations {
    fn columns(&self) -> &'static [Column] {
        const {
            &[
                table::NAME,
                table::string("Type", "Whether requests are limited"),
                table::string("NominalConcurrencyShares", "Part of the server's seats"),
                table::string("Queues", "Queues of the level"),
                table::string("HandSize", "Queues of each flow"),
                table::string("QueueLengthLimit", "Requests that may wait in a queue"),
                table::AGE,
            ]
        }
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let spec = &object["spec"];
        let cell = |path: &str| match at(spec, path) {
            Value::Null => "<none>".into(),
            number => number.clone(),
        };
        vec![
            name(object).into(),
            str_at(spec, "type").into(),
            cell("limited.nominalConcurrencyShares"),
            cell("limited.limitResponse.queuing.queues"),
            cell("limited.limitResponse.queuing.handSize"),
            cell("limited.limitResponse.queuing.queueLengthLimit"),
            table::age(object, now),
        ]
    }
}

crate::usual!(PriorityLevelConfigurations: UpdateStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

/// What the server relies on cannot be changed, but for what the exempt level lends.
fn mandatory(object: &Object, path: &Path, errors: &mut Errors) {
    let name = name(object);
    if !defaults::MANDATORY.contains(&name) {
        return;
    }
    let without = |object: &Object| {
        let mut spec = object["spec"].clone();
        if name == EXEMPT {
            remove(&mut spec, EXEMPT);
        }
        spec
    };
    let all = defaults::levels();
    let fixed = all.iter().find(|level| str_at(level, "metadata.name") == name);
    if fixed.is_some_and(|fixed| without(fixed) != without(object)) {
        let detail = if name == EXEMPT {
            format!("spec of '{name}' except the 'spec.exempt' field must equal the fixed value")
        } else {
            format!("spec of '{name}' must equal the fixed value")
        };
        errors.invalid(path, object["spec"].clone(), &detail);
    }
}

fn shares(part: &Value, path: &Path, errors: &mut Errors) {
    if let Some(shares) = i64_at(part, "nominalConcurrencyShares")
        && shares < 0
    {
        errors.invalid(&path.field("nominalConcurrencyShares"), shares, "must be a non-negative integer");
    }
    if let Some(percent) = i64_at(part, "lendablePercent")
        && !(0..=100).contains(&percent)
    {
        errors.invalid(&path.field("lendablePercent"), percent, "must be between 0 and 100, inclusive");
    }
}

fn exempt(spec: &Value, path: &Path, errors: &mut Errors) {
    shares(at(spec, EXEMPT), &path.field(EXEMPT), errors);
    if has(spec, "limited") {
        errors.forbidden(&path.field("limited"), "must be nil if the type is not Limited");
    }
}

fn limited(spec: &Value, path: &Path, errors: &mut Errors) {
    if has(spec, EXEMPT) {
        errors.forbidden(&path.field(EXEMPT), "must be nil if the type is Limited");
    }
    let here = path.field("limited");
    if !has(spec, "limited") {
        return errors.required(&here, "must not be empty when type is Limited");
    }
    let limited = at(spec, "limited");
    shares(limited, &here, errors);
    if let Some(percent) = i64_at(limited, "borrowingLimitPercent")
        && percent < 0
    {
        let detail = "if specified, must be a non-negative integer";
        errors.invalid(&here.field("borrowingLimitPercent"), percent, detail);
    }
    response(at(limited, "limitResponse"), &here.field("limitResponse"), errors);
}

fn response(response: &Value, path: &Path, errors: &mut Errors) {
    let queuing = path.field("queuing");
    match str_at(response, "type") {
        "Reject" if has(response, "queuing") => {
            errors.forbidden(&queuing, "must be nil if limited.limitResponse.type is not Limited");
        }
        "Reject" => {}
        "Queue" if !has(response, "queuing") => {
            errors.required(&queuing, "must not be empty if limited.limitResponse.type is Limited");
        }
        "Queue" => queues(at(response, "queuing"), &queuing, errors),
        _ => rules::one_of(response, "type", &["Queue", "Reject"], path, errors),
    }
}

fn queues(queuing: &Value, path: &Path, errors: &mut Errors) {
    let number = |field: &str| i64_at(queuing, field).unwrap_or(0);
    let (queues, hand) = (number("queues"), number("handSize"));
    for field in ["queueLengthLimit", "queues", "handSize"] {
        if number(field) <= 0 {
            errors.invalid(&path.field(field), number(field), "must be positive");
        }
    }
    if queues > MOST_QUEUES {
        let detail = format!("must not be greater than {MOST_QUEUES}");
        errors.invalid(&path.field("queues"), queues, &detail);
    }
    if hand > 0 && hand > queues {
        let detail = format!("should not be greater than queues ({queues})");
        errors.invalid(&path.field("handSize"), hand, &detail);
        return;
    }
    let (Ok(deck), Ok(cards)) = (u32::try_from(queues), u32::try_from(hand)) else { return };
    if entropy_bits(deck, cards.min(64)) > MAX_ENTROPY_BITS {
        let detail = format!(
            "required entropy bits of deckSize {deck} and handSize {cards} should not be greater than {MAX_ENTROPY_BITS}"
        );
        errors.invalid(&path.field("handSize"), hand, &detail);
    }
}
