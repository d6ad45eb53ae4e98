//! From the claims of a token to a user.

use super::expression::{Expression, user_value};
use coracle_api::UserInfo;
use coracle_api::identity::CREDENTIAL_ID;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

pub type Claims = Map<String, Value>;

/// Where a text of the user comes from.
#[derive(Debug)]
pub enum From {
    Claim { claim: String, prefix: String },
    Expression(Expression),
}

/// What must hold.
#[derive(Debug)]
pub struct Condition {
    pub expression: Expression,
    pub message: String,
}

/// Checked; see [`super::validation`].
#[derive(Debug)]
pub struct Mapping {
    pub username: From,
    pub groups: Option<From>,
    pub uid: Option<From>,
    pub extra: Vec<(String, Expression)>,
    /// Claims that must have this text.
    pub required: BTreeMap<String, String>,
    pub claim_conditions: Vec<Condition>,
    pub user_conditions: Vec<Condition>,
}

impl Mapping {
    /// # Errors
    /// A claim is missing or of another type, an expression fails, or a condition does not hold.
    pub fn user(&self, claims: &Claims) -> Result<UserInfo, String> {
        let tree = Value::Object(claims.clone());
        let user = UserInfo {
            name: self.username(claims, &tree)?,
            uid: match &self.uid {
                Some(from) => text(from, "uid", claims, &tree)?,
                None => String::new(),
            },
            groups: self.groups(claims, &tree)?,
            extra: self.extra(claims, &tree)?,
        };
        self.check_claims(claims, &tree)?;
        check(&self.user_conditions, &user_value(&user), "user info validation rule")?;
        Ok(user)
    }

    fn username(&self, claims: &Claims, tree: &Value) -> Result<String, String> {
        let name = text(&self.username, "username", claims, tree)?;
        if name.is_empty() {
            return Err("the username is empty".to_owned());
        }
        if let From::Claim { claim, .. } = &self.username
            && claim == "email"
            && let Some(verified) = claims.get("email_verified")
        {
            match verified.as_bool() {
                Some(true) => {}
                Some(false) => return Err("email not verified".to_owned()),
                None => return Err("parse 'email_verified' claim: it is no bool".to_owned()),
            }
        }
        Ok(name)
    }

    fn groups(&self, claims: &Claims, tree: &Value) -> Result<Vec<String>, String> {
        match &self.groups {
            None => Ok(Vec::new()),
            Some(From::Expression(expression)) => {
                let value = expression.eval(tree)?;
                texts(&value).map_err(|why| format!("error evaluating group claim expression: {why}"))
            }
            Some(From::Claim { claim, prefix }) => match claims.get(claim) {
                Some(Value::String(one)) => Ok(vec![format!("{prefix}{one}")]),
                Some(Value::Array(items)) => {
                    let one = |item: &Value| item.as_str().map(|group| format!("{prefix}{group}"));
                    let all: Option<Vec<String>> = items.iter().map(one).collect();
                    all.ok_or_else(|| format!("parse groups claim {claim:?}: it is no list of strings"))
                }
                Some(_) => Err(format!("parse groups claim {claim:?}: it is no list of strings")),
                None if claims.get("_claim_names").is_some_and(|names| names.get(claim).is_some()) => {
                    Err(format!(
                        "the groups claim {claim:?} is a distributed one, which this server does not fetch"
                    ))
                }
                None => Ok(Vec::new()),
            },
        }
    }

    fn extra(&self, claims: &Claims, tree: &Value) -> Result<BTreeMap<String, Vec<String>>, String> {
        let mut extra = BTreeMap::new();
        if let Some(id) = claims.get("jti").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        for (key, expression) in &self.extra {
            let value = expression.eval(tree)?;
            let values = texts(&value).map_err(|why| {
                format!("error evaluating extra claim expression: {}: {why}", expression.source())
            })?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        Ok(extra)
    }

    fn check_claims(&self, claims: &Claims, tree: &Value) -> Result<(), String> {
        for (claim, wanted) in &self.required {
            match claims.get(claim) {
                None => return Err(format!("required claim {claim} not present in ID token")),
                Some(Value::String(found)) if found == wanted => {}
                Some(found) => {
                    return Err(format!(
                        "required claim {claim} value does not match. Got = {found}, want = {wanted}"
                    ));
                }
            }
        }
        check(&self.claim_conditions, tree, "claim validation expression")
    }
}

fn text(from: &From, what: &str, claims: &Claims, tree: &Value) -> Result<String, String> {
    match from {
        From::Claim { claim, prefix } => match claims.get(claim) {
            Some(Value::String(text)) if text.is_empty() => Ok(String::new()),
            Some(Value::String(text)) => Ok(format!("{prefix}{text}")),
            Some(_) => Err(format!("parse {what} claim {claim:?}: it is no string")),
            None => Err(format!("parse {what} claim {claim:?}: claim not present")),
        },
        From::Expression(expression) => match expression.eval(tree)? {
            Value::String(text) => Ok(text),
            _ => Err(format!("{what} claim expression must return a string")),
        },
    }
}

/// A text or a list of texts; empty ones and null count as absent.
fn texts(value: &Value) -> Result<Vec<String>, String> {
    let wrong = || "expression must return a string or a list of strings".to_owned();
    let items = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Array(items) => items.as_slice(),
        one => std::slice::from_ref(one),
    };
    let texts: Option<Vec<String>> = items.iter().map(|item| item.as_str().map(str::to_owned)).collect();
    let mut texts = texts.ok_or_else(wrong)?;
    texts.retain(|text| !text.is_empty());
    Ok(texts)
}

fn check(conditions: &[Condition], value: &Value, what: &str) -> Result<(), String> {
    for Condition { expression, message } in conditions {
        match expression.eval(value)? {
            Value::Bool(true) => {}
            Value::Bool(false) => {
                return Err(format!(
                    "error evaluating {what}: validation expression '{}' failed: {message}",
                    expression.source()
                ));
            }
            _ => return Err(format!("error evaluating {what}: validation expression must return a boolean")),
        }
    }
    Ok(())
}
