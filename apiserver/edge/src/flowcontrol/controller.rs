//! Keeps the default objects, the `Dangling` conditions and the filter's configuration as they should be.

use super::state::FlowControl;
use axum::Router;
use axum::body::Body;
use coracle_api::condition::set_condition_of;
use coracle_api::{Object, UserInfo};
use coracle_component_base::health::{Health, Matters};
use coracle_requests::ObjectReader;
use coracle_requests::value::{at, i64_at, list_at, str_at};
use coracle_resources::cache::{Cache, Changes};
use coracle_strategy::flowcontrol::defaults::{self, AUTOUPDATE, GROUP, LEVELS, MANDATORY, SCHEMAS};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// After a failed write.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Rounds of writes in a row after which something else must be undoing them.
const MOST_ROUNDS: u32 = 10;
const FIGHT_INTERVAL: Duration = Duration::from_secs(60);

/// Upstream's name of the check that the default objects exist.
const PRODUCER: &str = "poststarthook/priority-and-fairness-config-producer";
const PRODUCER_MANAGER: &str = "api-priority-and-fairness-config-producer-v1";
const CONSUMER_MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Create(&'static str, Object),
    Replace(&'static str, Object),
    Delete(&'static str, String),
    Status(Object),
}

/// Says that the default objects are not there yet; [`maintain`] takes it back.
pub fn producer_check(health: &Health) {
    health.report(PRODUCER, Matters::Ready, Err("the default objects are not there yet".to_owned()));
}

/// Runs until `stop`. `service` is the server's own, for writes as one of its clients.
pub async fn maintain(
    control: Arc<FlowControl>,
    cache: Arc<Cache>,
    service: Router,
    health: Health,
    stop: CancellationToken,
) {
    let (mut rounds, mut is_first) = (0, true);
    let mut changes = Changes::of(&cache, &[SCHEMAS, LEVELS]);
    while !stop.is_cancelled() {
        let (schemas, levels) = (cache.list(SCHEMAS, ""), cache.list(LEVELS, ""));
        let actions = plan(&schemas, &levels, Timestamp::now());
        let plain = |objects: &[Arc<Object>]| objects.iter().map(|o| (**o).clone()).collect::<Vec<_>>();
        // The defaults are in force from the beginning. Without those that are about to be made, all who start with the
        // server would be in the level that has no queues.
        if !std::mem::take(&mut is_first) || actions.is_empty() {
            control.configure(&plain(&schemas), &plain(&levels));
        }
        let done = execute(&service, &actions).await;
        rounds = if actions.is_empty() { 0 } else { rounds + 1 };
        if done.is_ok() {
            health.report(PRODUCER, Matters::Ready, Ok(()));
        }
        let again = match done {
            Err(error) => {
                tracing::warn!(%error, "default objects of priority and fairness");
                RETRY_INTERVAL
            }
            Ok(()) if rounds > MOST_ROUNDS => FIGHT_INTERVAL,
            Ok(()) => Duration::MAX,
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = pause(again) => {}
            () = changes.next(), if again == Duration::MAX => {}
        }
    }
}

async fn pause(time: Duration) {
    if time == Duration::MAX {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(time).await;
}

/// What has to be written. Decided from what there is; nothing when all is as it should be.
pub fn plan(schemas: &[Arc<Object>], levels: &[Arc<Object>], now: Timestamp) -> Vec<Action> {
    let mut actions = kept(LEVELS, &defaults::levels(), levels);
    actions.extend(kept(SCHEMAS, &defaults::schemas(), schemas));
    let known = |name: &str| levels.iter().any(|level| str_at(level, "metadata.name") == name);
    actions.extend(schemas.iter().filter_map(|schema| dangling(schema, known, now)).map(Action::Status));
    actions
}

fn kept(resource: &'static str, wanted: &[Object], present: &[Arc<Object>]) -> Vec<Action> {
    let named = |object: &Object, name: &str| str_at(object, "metadata.name") == name;
    let mut actions = Vec::new();
    for object in wanted {
        let name = str_at(object, "metadata.name");
        match present.iter().find(|o| named(o, name)) {
            None => actions.push(Action::Create(resource, object.clone())),
            Some(found) => actions.extend(mended(object, found).map(|o| Action::Replace(resource, o))),
        }
    }
    for object in present {
        let name = str_at(object, "metadata.name");
        // Left behind by a version that had more of them.
        if object["metadata"]["annotations"][AUTOUPDATE] == "true" && !wanted.iter().any(|o| named(o, name)) {
            actions.push(Action::Delete(resource, name.to_owned()));
        }
    }
    actions
}

/// The object as it should be, if it is not.
fn mended(wanted: &Object, found: &Object) -> Option<Object> {
    let name = str_at(wanted, "metadata.name");
    let mandatory = MANDATORY.contains(&name);
    let keep = match found["metadata"]["annotations"][AUTOUPDATE].as_str() {
        _ if mandatory => true,
        Some("true") => true,
        Some("false") => false,
        // Nobody has said; who has changed the spec has taken it over.
        _ => i64_at(found, "metadata.generation").unwrap_or(1) == 1,
    };
    let mut mended = found.clone();
    if keep {
        mended["spec"] = wanted["spec"].clone();
        // What the exempt level lends is always the users' choice.
        if name == "exempt" && !at(found, "spec.exempt").is_null() {
            mended["spec"]["exempt"] = found["spec"]["exempt"].clone();
        }
    }
    if mended["metadata"]["annotations"].is_null() {
        mended["metadata"]["annotations"] = json!({});
    }
    mended["metadata"]["annotations"][AUTOUPDATE] = if keep { "true" } else { "false" }.into();
    (mended != *found).then_some(mended)
}

/// The schema with its `Dangling` condition, if that is missing or wrong.
fn dangling(schema: &Object, known: impl Fn(&str) -> bool, now: Timestamp) -> Option<Object> {
    let level = str_at(schema, "spec.priorityLevelConfiguration.name");
    let (status, reason, what) = if known(level) {
        ("False", "Found", "and it exists")
    } else {
        ("True", "NotFound", "but there is no such object")
    };
    let message =
        format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {what}");
    let conditions = list_at(schema, "status.conditions");
    let present = conditions.iter().find(|c| str_at(c, "type") == "Dangling");
    if present.is_some_and(|c| {
        str_at(c, "status") == status && str_at(c, "reason") == reason && str_at(c, "message") == message
    }) {
        return None;
    }
    let condition = json!({
        "type": "Dangling", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": coracle_api::meta::time::format_seconds(now),
    });
    let mut mended = schema.clone();
    set_condition_of(&mut mended, condition);
    Some(mended)
}

async fn execute(service: &Router, actions: &[Action]) -> Result<(), String> {
    let writes = actions.iter().map(|action| execute_one(service, action));
    futures::future::join_all(writes).await.into_iter().collect()
}

async fn execute_one(service: &Router, action: &Action) -> Result<(), String> {
    let path = |resource: &str| {
        let plural = resource.split('.').next().unwrap_or_default();
        format!("/apis/{GROUP}/v1/{plural}")
    };
    let name = |object: &Object| str_at(object, "metadata.name").to_owned();
    let (method, path, manager, body) = match action {
        Action::Create(resource, object) => (Method::POST, path(resource), PRODUCER_MANAGER, Some(object)),
        Action::Replace(resource, object) => {
            (Method::PUT, format!("{}/{}", path(resource), name(object)), PRODUCER_MANAGER, Some(object))
        }
        Action::Delete(resource, name) => {
            (Method::DELETE, format!("{}/{name}", path(resource)), PRODUCER_MANAGER, None)
        }
        Action::Status(object) => {
            let path = format!("{}/{}/status", path(SCHEMAS), name(object));
            (Method::PUT, path, CONSUMER_MANAGER, Some(object))
        }
    };
    let body = body.map_or_else(Body::empty, |object| Body::from(object.to_string()));
    let mut request = Request::builder()
        .method(&method)
        .uri(if method == Method::DELETE { path.clone() } else { format!("{path}?fieldManager={manager}") })
        .header("content-type", "application/json")
        .body(body)
        .map_err(|e| e.to_string())?;
    let myself = UserInfo::authenticated("system:apiserver", &[coracle_access::authz::MASTERS]);
    request.extensions_mut().insert(myself);
    let Ok(response) = service.clone().oneshot(request).await;
    let status = response.status();
    // Somebody else was quicker: the event of that leads back here.
    if status.is_success() || matches!(status, StatusCode::CONFLICT | StatusCode::NOT_FOUND) {
        return Ok(());
    }
    let text = response.into_body().collect().await.map_err(|e| e.to_string())?.to_bytes();
    Err(format!("{method} {path}: {status}: {}", String::from_utf8_lossy(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn present(objects: &[Object]) -> Vec<Arc<Object>> {
        objects.iter().cloned().map(Arc::new).collect()
    }

    fn settled() -> (Vec<Object>, Vec<Object>) {
        let mut schemas = defaults::schemas();
        for schema in &mut schemas {
            *schema = dangling(schema, |_| true, Timestamp::UNIX_EPOCH).unwrap();
        }
        (schemas, defaults::levels())
    }

    #[test]
    fn what_is_missing_is_made_and_what_is_right_stays() {
        let actions = plan(&[], &[], Timestamp::UNIX_EPOCH);
        assert_eq!(actions.len(), 8 + 13);
        assert!(actions.iter().all(|a| matches!(a, Action::Create(..))));
        let (schemas, levels) = settled();
        assert_eq!(plan(&present(&schemas), &present(&levels), Timestamp::UNIX_EPOCH), []);
    }

    #[test]
    fn users_keep_what_they_take_over_but_not_what_is_mandatory() {
        let (schemas, mut levels) = settled();
        let change = |levels: &mut [Object], name: &str, annotation: Value, generation: i64| {
            let level = levels.iter_mut().find(|l| str_at(l, "metadata.name") == name).unwrap();
            level["spec"]["limited"]["nominalConcurrencyShares"] = 77.into();
            level["metadata"]["annotations"][AUTOUPDATE] = annotation;
            level["metadata"]["generation"] = generation.into();
        };
        let outcome = |levels: &[Object]| {
            let actions = plan(&present(&schemas), &present(levels), Timestamp::UNIX_EPOCH);
            let [Action::Replace(_, object)] = &actions[..] else { return None };
            Some((
                object["spec"]["limited"]["nominalConcurrencyShares"].clone(),
                object["metadata"]["annotations"][AUTOUPDATE].clone(),
            ))
        };
        change(&mut levels, "system", "false".into(), 2);
        assert_eq!(outcome(&levels), None);
        change(&mut levels, "system", "true".into(), 2);
        assert_eq!(outcome(&levels), Some((30.into(), "true".into())));
        change(&mut levels, "system", Value::Null, 2);
        assert_eq!(outcome(&levels), Some((77.into(), "false".into())));
        change(&mut levels, "system", Value::Null, 1);
        assert_eq!(outcome(&levels), Some((30.into(), "true".into())));
        let (_, mut levels) = settled();
        change(&mut levels, "catch-all", "false".into(), 2);
        assert_eq!(outcome(&levels), Some((5.into(), "true".into())));
    }

    #[test]
    fn the_exempt_level_may_lend_what_it_likes() {
        let (schemas, mut levels) = settled();
        levels[0]["spec"]["exempt"]["nominalConcurrencyShares"] = 40.into();
        assert_eq!(plan(&present(&schemas), &present(&levels), Timestamp::UNIX_EPOCH), []);
    }

    #[test]
    fn schemas_without_a_level_dangle() {
        let (schemas, mut levels) = settled();
        levels.retain(|l| str_at(l, "metadata.name") != "system");
        let actions = plan(&present(&schemas), &present(&levels), Timestamp::UNIX_EPOCH);
        let [Action::Create(..), Action::Status(schema)] = &actions[..] else { panic!("{actions:?}") };
        let condition = &schema["status"]["conditions"][0];
        assert_eq!((str_at(condition, "status"), str_at(condition, "reason")), ("True", "NotFound"));
        assert_eq!(
            str_at(condition, "message"),
            "This FlowSchema references the PriorityLevelConfiguration object named \"system\" but there is no such object"
        );
    }

    #[test]
    fn leftovers_of_other_versions_go() {
        let (mut schemas, levels) = settled();
        let mut old = schemas[5].clone();
        old["metadata"]["name"] = "old".into();
        schemas.push(old);
        let actions = plan(&present(&schemas), &present(&levels), Timestamp::UNIX_EPOCH);
        assert_eq!(actions, [Action::Delete(SCHEMAS, "old".to_owned())]);
    }
}
