//! Policies and bindings as they are used: every expression compiled, every rule parsed.

use crate::matching::Matcher;
use coracle_api::Object;
use coracle_api::selector::LabelSelector;
use coracle_cel::Type;
use coracle_strategy::expression::{
    Composed, Declared, Expression, MatchConditions, Typing, json_patches, structure,
};
use serde_json::Value;

/// What a set of policies is made of.
pub trait Policy: Sized + Send + Sync {
    /// `<plural>.<group>` of the policies and of their bindings.
    const POLICIES: &'static str;
    const BINDINGS: &'static str;

    fn compile(object: &Object) -> Self;
    fn common(&self) -> &Common;
    /// All that were compiled, in no order.
    fn expressions(&self) -> Vec<&Expression>;
}

/// What both kinds of policies have.
#[derive(Debug)]
pub struct Common {
    pub name: String,
    /// `failurePolicy: Fail`.
    pub fail: bool,
    /// Or why the selectors cannot be read.
    pub constraints: Result<Matcher, String>,
    pub param_kind: Option<ParamKind>,
    pub composed: Composed,
    pub conditions: MatchConditions,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamKind {
    pub api_version: String,
    pub kind: String,
}

#[derive(Debug)]
pub struct Validating {
    pub common: Common,
    pub validations: Vec<Validation>,
    /// Key and expression.
    pub annotations: Vec<(String, Expression)>,
    pub needs: Needs,
}

/// Which variables that take work to make a policy names.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    pub request: bool,
    pub namespace: bool,
    pub authorizer: bool,
}

#[derive(Debug)]
pub struct Validation {
    pub check: Expression,
    pub message_expression: Option<Expression>,
    pub message: String,
    pub reason: &'static str,
}

#[derive(Debug)]
pub struct Mutating {
    pub common: Common,
    pub mutations: Vec<Mutation>,
    /// `reinvocationPolicy: IfNeeded`.
    pub reinvoke: bool,
}

#[derive(Debug)]
pub enum Mutation {
    Apply(Expression),
    JsonPatch(Expression),
}

impl Mutation {
    fn expression(&self) -> &Expression {
        let (Self::Apply(expression) | Self::JsonPatch(expression)) = self;
        expression
    }
}

#[derive(Debug)]
pub struct Binding {
    pub name: String,
    /// Absent `matchResources` narrow nothing.
    pub resources: Option<Result<Matcher, String>>,
    pub params: Option<ParamRef>,
    pub actions: Vec<String>,
}

#[derive(Debug)]
pub struct ParamRef {
    pub name: String,
    pub namespace: String,
    pub selector: Option<Result<LabelSelector, String>>,
    /// `parameterNotFoundAction: Deny`.
    pub required: bool,
}

pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

pub(super) fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn matcher(resources: &Value) -> Result<Matcher, String> {
    Matcher::of_resources(resources).map_err(|error| error.to_string())
}

/// The optional variables of a policy's expressions: `authorizer` is not for messages.
pub fn declared(spec: &Value, authorizer: bool) -> Declared {
    Declared { params: spec["paramKind"].is_object(), authorizer, patches: false }
}

pub fn compose(spec: &Value, typing: &Typing) -> Composed {
    let variables: Vec<(&str, &str)> =
        items(spec, "variables").iter().map(|v| (text(v, "name"), text(v, "expression"))).collect();
    Composed::compile(&variables, declared(spec, true), typing)
}

impl Common {
    fn compile(object: &Object) -> Self {
        let spec = &object["spec"];
        let composed = compose(spec, &Typing::default());
        let conditions =
            MatchConditions::compile_with(&spec["matchConditions"], declared(spec, true), Some(&composed));
        let kind = &spec["paramKind"];
        Self {
            name: text(&object["metadata"], "name").to_owned(),
            fail: text(spec, "failurePolicy") != "Ignore",
            constraints: matcher(&spec["matchConstraints"]),
            param_kind: kind.is_object().then(|| ParamKind {
                api_version: text(kind, "apiVersion").to_owned(),
                kind: text(kind, "kind").to_owned(),
            }),
            composed,
            conditions,
        }
    }

    fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.conditions.expressions().chain(self.composed.expressions())
    }
}

impl Policy for Validating {
    const POLICIES: &'static str = "validatingadmissionpolicies.admissionregistration.k8s.io";
    const BINDINGS: &'static str = "validatingadmissionpolicybindings.admissionregistration.k8s.io";

    fn compile(object: &Object) -> Self {
        let (common, spec) = (Common::compile(object), &object["spec"]);
        let compile = |source: &str, authorizer: bool, wanted: &[Type]| {
            let declared = declared(spec, authorizer);
            Expression::compile(source, declared, Some(&common.composed), wanted, &Typing::default())
        };
        let validation = |rule: &Value| {
            let message = text(rule, "messageExpression");
            Validation {
                check: compile(text(rule, "expression"), true, &[Type::Bool]),
                message_expression: (!message.trim().is_empty())
                    .then(|| compile(message, false, &[Type::STRING])),
                message: text(rule, "message").to_owned(),
                reason: reason(text(rule, "reason")),
            }
        };
        let annotation = |item: &Value| {
            let wanted = [Type::STRING, Type::Null];
            (text(item, "key").to_owned(), compile(text(item, "valueExpression").trim(), true, &wanted))
        };
        let validations = items(spec, "validations").iter().map(validation).collect();
        let annotations = items(spec, "auditAnnotations").iter().map(annotation).collect();
        let mut policy = Self {
            common,
            validations,
            annotations,
            needs: Needs { request: true, namespace: true, authorizer: true },
        };
        policy.needs = Needs {
            request: policy.mentions("request"),
            namespace: policy.mentions("namespaceObject"),
            authorizer: policy.mentions("authorizer"),
        };
        policy
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn expressions(&self) -> Vec<&Expression> {
        let validations = &self.validations;
        let own = validations.iter().flat_map(|one| [Some(&one.check), one.message_expression.as_ref()]);
        let annotations = self.annotations.iter().map(|(_, expression)| expression);
        self.common.expressions().chain(own.flatten()).chain(annotations).collect()
    }
}

impl Validating {
    fn mentions(&self, variable: &str) -> bool {
        self.expressions().iter().any(|expression| expression.mentions(variable))
    }
}

fn reason(text: &str) -> &'static str {
    ["Unauthorized", "Forbidden", "RequestEntityTooLarge"]
        .into_iter()
        .find(|r| *r == text)
        .unwrap_or("Invalid")
}

impl Policy for Mutating {
    const POLICIES: &'static str = "mutatingadmissionpolicies.admissionregistration.k8s.io";
    const BINDINGS: &'static str = "mutatingadmissionpolicybindings.admissionregistration.k8s.io";

    fn compile(object: &Object) -> Self {
        let (common, spec) = (Common::compile(object), &object["spec"]);
        let mutations = items(spec, "mutations").iter().map(|mutation| {
            let compile = |field: &str, wanted: Type| {
                let declared = Declared { patches: true, ..declared(spec, true) };
                let source = text(&mutation[field], "expression");
                Expression::compile(source, declared, Some(&common.composed), &[wanted], &Typing::default())
            };
            match text(mutation, "patchType") {
                "JSONPatch" => Mutation::JsonPatch(compile("jsonPatch", json_patches())),
                _ => Mutation::Apply(compile("applyConfiguration", structure("Object"))),
            }
        });
        let mutations = mutations.collect();
        Self { common, mutations, reinvoke: text(spec, "reinvocationPolicy") == "IfNeeded" }
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn expressions(&self) -> Vec<&Expression> {
        self.common.expressions().chain(self.mutations.iter().map(Mutation::expression)).collect()
    }
}

impl Binding {
    pub fn compile(object: &Object) -> Self {
        let spec = &object["spec"];
        let (resources, params) = (&spec["matchResources"], &spec["paramRef"]);
        let actions = items(spec, "validationActions").iter().filter_map(Value::as_str);
        Self {
            name: text(&object["metadata"], "name").to_owned(),
            resources: resources.is_object().then(|| matcher(resources)),
            params: params.is_object().then(|| ParamRef {
                name: text(params, "name").to_owned(),
                namespace: text(params, "namespace").to_owned(),
                selector: params["selector"]
                    .is_object()
                    .then(|| LabelSelector::from_object(&params["selector"]).map_err(|e| e.to_string())),
                required: text(params, "parameterNotFoundAction") == "Deny",
            }),
            actions: actions.map(str::to_owned).collect(),
        }
    }
}
