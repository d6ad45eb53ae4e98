use super::*;

#[test]
fn the_webhook_sees_images_and_its_annotations() {
    let pod = json!({
        "metadata": { "annotations": { "a.image-policy.k8s.io/ticket": "1", "other": "2" } },
        "spec": { "containers": [{ "image": "x" }], "initContainers": [{ "image": "y" }],
            "ephemeralContainers": [{ "image": "z" }] },
    });
    assert_eq!(
        spec(&pod, &["containers", "initContainers"], "n"),
        json!({ "containers": [{ "image": "x" }, { "image": "y" }],
            "annotations": { "a.image-policy.k8s.io/ticket": "1" }, "namespace": "n" })
    );
    assert_eq!(spec(&pod, &["ephemeralContainers"], "")["containers"], json!([{ "image": "z" }]));
}

#[test]
fn an_answer_that_makes_no_sense_is_none() {
    let review =
        |status: Value| json!({ "kind": "ImageReview", "apiVersion": API_VERSION, "status": status });
    assert!(Status::read(&review(json!({ "allowed": true }))).unwrap().allowed);
    assert!(!Status::read(&review(Value::Null)).unwrap().allowed);
    for wrong in [json!({ "status": { "allowed": true } }), review(json!({ "allowed": "true" })), json!([])] {
        assert!(Status::read(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn times_have_a_default_an_end_and_may_be_none() {
    let of = |value| duration(value, Duration::from_secs(1), TTL_RANGE, DEFAULT_DENY_TTL);
    assert_eq!(of(0), Ok(DEFAULT_DENY_TTL));
    assert_eq!(of(-1), Ok(Duration::ZERO));
    assert_eq!(of(1800), Ok(Duration::from_secs(1800)));
    for wrong in [1, 1801, -2, i64::MAX] {
        assert!(of(wrong).is_err(), "{wrong}");
    }
}
