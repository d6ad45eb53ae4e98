use super::*;
use crate::testing::World;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};

fn request_pem() -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "jane");
    let key = KeyPair::generate().unwrap();
    STANDARD.encode(params.serialize_request(&key).unwrap().pem().unwrap())
}

fn csr(spec: Value) -> Object {
    let mut object = json!({
        "metadata": { "name": "x" },
        "spec": { "request": request_pem(), "signerName": "example.com/s", "usages": ["client auth"] },
    });
    json_patch::merge(&mut object["spec"], &spec);
    object
}

fn created(spec: Value) -> Vec<String> {
    let mut errors = Vec::new();
    let object = csr(spec);
    CertificateSigningRequests.validate_create(&object, &World::default().env(), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn the_server_says_who_asks() {
    let mut object = csr(json!({ "username": "root", "groups": ["system:masters"], "uid": "7" }));
    object["status"] = json!({ "conditions": [{ "type": "Approved", "status": "True" }] });
    let mut user = UserInfo::authenticated("jane", &["dev"]);
    user.extra.insert("k".to_owned(), vec!["v".to_owned()]);
    let world = World { user, ..World::default() };
    CertificateSigningRequests.prepare_create(&mut object, &world.env());
    let spec = &object["spec"];
    assert_eq!(spec["username"], "jane");
    assert_eq!(spec["groups"], json!(["dev", "system:authenticated"]));
    assert_eq!(spec["extra"], json!({ "k": ["v"] }));
    assert!(spec["uid"].is_null());
    assert_eq!(object["status"], json!({}));
}

#[test]
fn what_may_be_asked_for() {
    assert_eq!(created(json!({})), [] as [&str; 0]);
    let garbage = STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    for (spec, expected) in [
        (json!({ "usages": [] }), "spec.usages: Required value".to_owned()),
        (json!({ "usages": null }), "spec.usages: Required value".to_owned()),
        (json!({ "usages": ["any", "any"] }), "spec.usages[1]: Duplicate value: \"any\"".to_owned()),
        (
            json!({ "request": garbage }),
            format!("spec.request: Invalid value: \"{garbage}\": PEM block type must be CERTIFICATE REQUEST"),
        ),
        (
            json!({ "expirationSeconds": 599 }),
            "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)"
                .to_owned(),
        ),
        (
            json!({ "signerName": "kubernetes.io/legacy-unknown" }),
            "spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via this API version"
                .to_owned(),
        ),
        (
            json!({ "signerName": "local/x" }),
            "spec.signerName: Invalid value: \"local\": should be a domain with at least two segments separated by dots"
                .to_owned(),
        ),
        (
            json!({ "signerName": "a.b/c/d" }),
            "spec.signerName: Invalid value: \"a.b/c/d\": must be a fully qualified domain and path of the form 'example.com/signer-name'"
                .to_owned(),
        ),
    ] {
        assert_eq!(created(spec.clone()), [expected], "{spec}");
    }
    let unknown = created(json!({ "usages": ["sign everything"] }));
    assert!(
        unknown[0]
            .starts_with("spec.usages[0]: Unsupported value: \"sign everything\": supported values: \"any\"")
    );
    assert!(created(json!({ "signerName": "" })).contains(&"spec.signerName: Required value".to_owned()));
    assert!(created(json!({ "signerName": "a.B/c" }))[0].contains("validating label \"B\""));
}

#[test]
fn a_request_that_was_tampered_with_is_refused() {
    let pem = String::from_utf8(STANDARD.decode(request_pem()).unwrap()).unwrap();
    let other = String::from_utf8(STANDARD.decode(request_pem()).unwrap()).unwrap();
    let body =
        |pem: &str| STANDARD.decode(pem.lines().filter(|l| !l.starts_with('-')).collect::<String>()).unwrap();
    let (mut one, two) = (body(&pem), body(&other));
    // Another request's signature at the end; lengths differ by a byte at most, so look for a pair that fits.
    if one.len() == two.len() {
        let from = one.len() - 40;
        one[from..].copy_from_slice(&two[from..]);
    } else {
        let last = one.len() - 1;
        one[last] ^= 1;
    }
    let forged = format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
        STANDARD.encode(&one)
    );
    let found = created(json!({ "request": STANDARD.encode(forged) }));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("signature"), "{found:?}");
}

fn condition(kind: &str) -> Value {
    json!({ "type": kind, "status": "True", "reason": "Test" })
}

fn with(conditions: Value) -> Object {
    let mut object = csr(json!({}));
    object["status"] = json!({ "conditions": conditions });
    object
}

#[test]
fn approval_changes_conditions_alone() {
    let world = World::default();
    let old = csr(json!({}));
    let mut new = old.clone();
    new["spec"]["signerName"] = "other.com/s".into();
    new["status"] = json!({ "conditions": [condition("Approved")], "certificate": "eA==" });
    CertificateSigningRequests.prepare_approval_update(&mut new, &old, &world.env());
    assert_eq!(new["spec"], old["spec"]);
    assert!(new["status"]["certificate"].is_null());
    assert_eq!(new["status"]["conditions"][0]["lastUpdateTime"], "1970-01-01T00:00:00Z");
    let mut errors = Vec::new();
    CertificateSigningRequests.validate_approval_update(&new, &old, &world.env(), &mut errors);
    assert_eq!(errors, []);
    let mut both = new.clone();
    both["status"]["conditions"].as_array_mut().unwrap().push(condition("Denied"));
    CertificateSigningRequests.validate_approval_update(&both, &new, &world.env(), &mut errors);
    assert_eq!(
        errors[0].to_string(),
        "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive"
    );
    let mut errors = Vec::new();
    CertificateSigningRequests.validate_approval_update(&old, &new, &world.env(), &mut errors);
    assert!(errors[0].to_string().ends_with("updates may not remove a condition of type \"Approved\""));
}

#[test]
fn the_status_neither_approves_nor_loses_an_approval() {
    let world = World::default();
    let plain = csr(json!({}));
    let mut approved = with(json!([condition("Approved")]));
    conditions::stamp(&mut approved, &plain, Timestamp::UNIX_EPOCH);
    let mut errors = Vec::new();
    let mut sneaky = with(json!([condition("Approved")]));
    sneaky["spec"] = plain["spec"].clone();
    CertificateSigningRequests.validate_status_update(&sneaky, &plain, &world.env(), &mut errors);
    assert!(errors[0].to_string().ends_with("updates may not add a condition of type \"Approved\""));
    let mut failed = with(json!([condition("Failed")]));
    CertificateSigningRequests.prepare_status_update(&mut failed, &approved, &world.env());
    let kinds: Vec<&str> = list_at(&failed, "status.conditions").iter().map(|c| str_at(c, "type")).collect();
    assert_eq!(kinds, ["Failed", "Approved"]);
    let mut errors = Vec::new();
    CertificateSigningRequests.validate_status_update(&failed, &approved, &world.env(), &mut errors);
    assert_eq!(errors, []);
}

#[test]
fn certificates_are_pem_and_written_once() {
    let world = World::default();
    let old = csr(json!({}));
    let told = |new: &Object, old: &Object| {
        let mut errors = Vec::new();
        CertificateSigningRequests.validate_status_update(new, old, &world.env(), &mut errors);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let mut new = old.clone();
    new["status"] = json!({ "certificate": STANDARD.encode("nonsense") });
    assert_eq!(
        told(&new, &old),
        [
            "status.certificate: Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE PEM block"
        ]
    );
    let key = KeyPair::generate().unwrap();
    let pem = CertificateParams::default().self_signed(&key).unwrap().pem();
    new["status"] = json!({ "certificate": STANDARD.encode(&pem) });
    assert_eq!(told(&new, &old), [] as [&str; 0]);
    let mut again = new.clone();
    again["status"] = json!({ "certificate": STANDARD.encode(format!("{pem}{pem}")) });
    assert_eq!(
        told(&again, &new),
        ["status.certificate: Forbidden: updates may not modify existing certificate content"]
    );
}

#[test]
fn rows() {
    let row = |object: &Object| CertificateSigningRequests.row(object, Timestamp::UNIX_EPOCH);
    let mut object = with(json!([condition("Approved")]));
    object["spec"]["username"] = "jane".into();
    assert_eq!(row(&object), ["x", "<unknown>", "example.com/s", "jane", "<none>", "Approved"]);
    object["status"]["certificate"] = "eA==".into();
    object["spec"]["expirationSeconds"] = 3600.into();
    assert_eq!(row(&object)[4..], ["60m", "Approved,Issued"]);
    assert_eq!(row(&csr(json!({})))[5], "Pending");
    let denied = with(json!([condition("Denied"), condition("Failed")]));
    assert_eq!(row(&denied)[5], "Denied,Failed");
}

/// A certificate that is good for so many seconds, as a status has it.
fn certificate_for(seconds: i64) -> String {
    let mut params = CertificateParams::default();
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = params.not_before + std::time::Duration::from_secs(u64::try_from(seconds).unwrap());
    STANDARD.encode(params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem())
}

#[test]
fn issued_certificates_count_once_and_by_whether_they_last_as_long_as_asked() {
    let of = |spec: Value, before: Option<i64>, now: Option<i64>| {
        let with = |seconds: Option<i64>| {
            let mut object = csr(spec.clone());
            object["status"] = json!({ "certificate": seconds.map(certificate_for) });
            object
        };
        CertificateSigningRequests.issued(&with(now), &with(before))
    };
    let asked = |signer: &str| json!({ "expirationSeconds": 36_000, "signerName": signer });
    let issued = |signer: &str, honored| Some(Issued { signer: signer.to_owned(), honored });
    let own = "kubernetes.io/kubelet-serving";
    for (now, honored) in [(36_000, true), (38_099, true), (38_100, false), (33_901, true), (33_900, false)] {
        assert_eq!(of(asked(own), None, Some(now)), issued(own, honored), "{now}");
    }
    assert_eq!(of(asked("example.com/s"), None, Some(36_000)), issued("other", true));
    assert_eq!(of(json!({ "signerName": own }), None, Some(36_000)), None, "nobody asked for a duration");
    assert_eq!(of(asked(own), None, None), None, "not signed yet");
    assert_eq!(of(asked(own), Some(36_000), Some(36_000)), None, "signed before");
}
