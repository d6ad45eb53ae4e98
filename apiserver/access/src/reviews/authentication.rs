//! TokenReview and SelfSubjectReview: who is this?

use super::{strings, text};
use crate::authn::{Authenticator, AuthnError};
use coracle_api::meta::time::format_seconds;
use coracle_api::{ApiError, Object, UserInfo};
use jiff::Timestamp;
use serde_json::{Value, json};

fn user_json(user: &UserInfo) -> Value {
    let mut out = json!({ "username": user.name });
    if !user.uid.is_empty() {
        out["uid"] = user.uid.as_str().into();
    }
    if !user.groups.is_empty() {
        out["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        out["extra"] = json!(user.extra);
    }
    out
}

/// Whose token is it, and is it good? Asked by components and webhooks that get bearer tokens themselves.
pub async fn token_review(review: Object, authenticator: &Authenticator) -> Result<Object, ApiError> {
    let token = text(&review["spec"], "token").to_owned();
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let asked = strings(&review["spec"]["audiences"]);
    let status = match authenticator.token(&token, &asked).await {
        Ok(found) => {
            let mut status = json!({ "authenticated": true, "user": user_json(&found.user) });
            if !found.audiences.is_empty() {
                status["audiences"] = json!(found.audiences);
            }
            status
        }
        // As upstream: nobody here knows why a token is not good that may be anybody's.
        Err(AuthnError::Foreign) => json!({ "user": {} }),
        Err(error) => json!({ "user": {}, "error": error.to_string() }),
    };
    let mut review = review;
    review["status"] = status;
    Ok(review)
}

/// `kubectl auth whoami`.
pub fn self_subject_review(review: Object, user: &UserInfo) -> Result<Object, ApiError> {
    let mut review = review;
    review["metadata"] = json!({ "creationTimestamp": format_seconds(Timestamp::now()) });
    review["status"] = json!({ "userInfo": user_json(user) });
    Ok(review)
}
