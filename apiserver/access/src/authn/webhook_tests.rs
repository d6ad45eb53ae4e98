use super::*;
use futures::FutureExt;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Answers one after the other, the last one for ever; remembers what it was asked.
struct Fake {
    answers: Mutex<VecDeque<Result<Value, ReviewError>>>,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Reviewer for Fake {
    fn review(&self, review: Vec<u8>) -> BoxFuture<'_, Result<Vec<u8>, ReviewError>> {
        self.asked.lock().push(serde_json::from_slice(&review).unwrap());
        let mut answers = self.answers.lock();
        let answer = if answers.len() > 1 { answers.pop_front().unwrap() } else { answers[0].clone() };
        async move { answer.map(|answer| answer.to_string().into_bytes()) }.boxed()
    }
}

fn webhook(
    answers: impl IntoIterator<Item = Result<Value, ReviewError>>,
) -> (TokenWebhook, Arc<Mutex<Vec<Value>>>) {
    let asked = Arc::default();
    let fake = Fake { answers: Mutex::new(answers.into_iter().collect()), asked: Arc::clone(&asked) };
    (TokenWebhook::new(fake, Version::V1, DEFAULT_TTL), asked)
}

fn answer(status: Value) -> Result<Value, ReviewError> {
    Ok(json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status }))
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|one| (*one).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_it_says_of_a_user_counts_for_a_while() {
    let (webhook, asked) = webhook([answer(json!({
        "authenticated": true,
        "user": { "username": "jane", "uid": "7", "groups": ["dev"], "extra": { "a/b": ["c"] } }
    }))]);
    let own = texts(&["api"]);
    for _ in 0..2 {
        let found = webhook.authenticate("t", &own, &own).await.unwrap().unwrap();
        assert_eq!((found.user.name.as_str(), found.user.uid.as_str()), ("jane", "7"));
        assert_eq!((found.user.groups, found.user.extra["a/b"].clone()), (texts(&["dev"]), texts(&["c"])));
        assert_eq!(found.audiences, ["api"]);
    }
    assert_eq!(asked.lock().len(), 1);
    assert_eq!(asked.lock()[0]["spec"], json!({ "token": "t", "audiences": ["api"] }));
    // Of other audiences it is asked anew, and who says nothing of them speaks for the API alone.
    assert!(webhook.authenticate("t", &texts(&["vault"]), &own).await.unwrap().is_none());
    assert_eq!(asked.lock().len(), 2);
    tokio::time::advance(DEFAULT_TTL).await;
    assert!(webhook.authenticate("t", &own, &own).await.unwrap().is_some());
    assert_eq!(asked.lock().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn refusals_are_remembered_and_failures_are_not() {
    let failure = |again| Err(ReviewError { message: "500".to_owned(), again });
    let (webhook, asked) = webhook([
        failure(true),
        failure(true),
        failure(false),
        answer(json!({ "authenticated": false, "user": null })),
    ]);
    let own = texts(&["api"]);
    let error = webhook.authenticate("t", &own, &own).await.unwrap_err();
    assert_eq!((error.as_str(), asked.lock().len()), ("token webhook: 500", 3));
    assert!(webhook.authenticate("t", &own, &own).await.unwrap().is_none());
    assert!(webhook.authenticate("t", &own, &own).await.unwrap().is_none());
    assert_eq!(asked.lock().len(), 4);
    let (webhook, asked) = self::webhook([failure(true)]);
    webhook.authenticate("t", &own, &own).await.unwrap_err();
    assert_eq!(asked.lock().len(), 5, "attempts are bounded");
}

#[tokio::test]
async fn audiences_are_those_that_both_sides_name() {
    let user = json!({ "username": "jane" });
    let status = json!({ "authenticated": true, "user": user, "audiences": ["vault", "x"] });
    let (webhook, _) = webhook([answer(status)]);
    let own = texts(&["api"]);
    let found = webhook.authenticate("t", &texts(&["vault", "y"]), &own).await.unwrap().unwrap();
    assert_eq!(found.audiences, ["vault"]);
    assert!(webhook.authenticate("t", &own, &own).await.unwrap().is_none());
}

#[tokio::test]
async fn nobody_is_let_in_by_an_answer_that_says_something_else() {
    let yes = json!({ "authenticated": true, "user": { "username": "jane" } });
    for wrong in [
        json!({ "apiVersion": "authentication.k8s.io/v1beta1", "kind": "TokenReview", "status": yes }),
        json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "Status", "status": yes }),
        json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": { "authenticated": "yes" } }),
        json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": { "authenticated": true } }),
        json!("nonsense"),
    ] {
        let (webhook, _) = webhook([Ok(wrong.clone())]);
        let own = texts(&["api"]);
        webhook.authenticate("t", &own, &own).await.expect_err(&wrong.to_string());
    }
}
