use super::signing::{self, PrivateKey};
use super::validation::compile;
use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use coracle_component_base::metrics::Metrics;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const URL: &str = "https://id.example.com";
const NOW: i64 = 1_800_000_000;

/// An issuer's documents in memory; remembers what was fetched.
#[derive(Default)]
struct Pages {
    pages: Mutex<BTreeMap<String, Value>>,
    fetched: Mutex<Vec<String>>,
}

impl Web for Pages {
    fn get<'a>(&'a self, url: &'a str, _: Option<&'a [u8]>) -> BoxFuture<'a, Result<Bytes, String>> {
        self.fetched.lock().push(url.to_owned());
        let page = self.pages.lock().get(url).map(|page| Bytes::from(page.to_string()));
        std::future::ready(page.ok_or_else(|| format!("no {url}"))).boxed()
    }
}

/// A key pair of ES256.
struct Signer {
    kid: &'static str,
    key: PrivateKey,
}

impl Signer {
    fn new(kid: &'static str) -> Self {
        let key = coracle_pki::ServiceAccountKey::ephemeral().unwrap();
        Self { kid, key: PrivateKey::p256(key.private_pkcs8()) }
    }

    fn jwk(&self) -> Value {
        with(&self.key.jwk(self.kid), &json!({ "alg": "ES256" }))
    }

    fn sign(&self, claims: &Value) -> String {
        self.key.token(Algorithm::ES256, self.kid, claims)
    }
}

impl Pages {
    fn of(signers: &[&Signer]) -> Arc<Self> {
        let pages = Arc::new(Self::default());
        let discovery = json!({ "issuer": URL, "jwks_uri": format!("{URL}/keys") });
        pages.pages.lock().insert(format!("{URL}/.well-known/openid-configuration"), discovery);
        pages.rotate(signers);
        pages
    }

    fn rotate(&self, signers: &[&Signer]) {
        let keys: Vec<Value> = signers.iter().map(|signer| signer.jwk()).collect();
        self.pages.lock().insert(format!("{URL}/keys"), json!({ "keys": keys }));
    }

    /// Fetches of the keys.
    fn fetches(&self) -> usize {
        self.fetched.lock().iter().filter(|url| url.ends_with("/keys")).count()
    }
}

fn document(jwt: &Value) -> AuthenticationConfiguration {
    let document = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [jwt],
    });
    AuthenticationConfiguration::parse(&document.to_string()).unwrap()
}

fn plain() -> Value {
    json!({
        "issuer": { "url": URL, "audiences": ["kube"] },
        "claimMappings": {
            "username": { "claim": "sub", "prefix": "oidc:" }, "groups": { "claim": "groups", "prefix": "oidc:" },
        },
    })
}

fn claims() -> Value {
    json!({ "iss": URL, "aud": "kube", "sub": "jane", "exp": NOW + 600, "groups": ["dev"] })
}

fn with(base: &Value, changes: &Value) -> Value {
    let mut changed = base.clone();
    json_patch::merge(&mut changed, changes);
    changed
}

/// Started, and its keys fetched.
async fn started(jwt: &Value, pages: &Arc<Pages>) -> Issuers {
    let compiled = compile(&document(jwt), &[]).unwrap();
    let web: Arc<dyn Web> = pages.clone();
    let issuers = Issuers::start(compiled, &ALGORITHMS, &Issuers::default(), &web, &Metrics::default());
    while pages.fetches() == 0 || issuers.issuers[0].source.keys().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    issuers
}

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

impl Issuers {
    async fn ask(&self, token: &str) -> Result<UserInfo, String> {
        self.authenticate(token, time(NOW)).await.expect("one of ours")
    }
}

#[tokio::test(start_paused = true)]
async fn claims_become_a_user() {
    let signer = Signer::new("k1");
    let issuers = started(&plain(), &Pages::of(&[&signer])).await;
    let user = issuers.ask(&signer.sign(&with(&claims(), &json!({ "jti": "7" })))).await.unwrap();
    assert_eq!((user.name.as_str(), user.groups), ("oidc:jane", vec!["oidc:dev".to_owned()]));
    assert_eq!(user.extra["authentication.kubernetes.io/credential-id"], ["JTI=7"]);
    let one = signer.sign(&with(&claims(), &json!({ "groups": "ops", "aud": ["x", "kube"] })));
    assert_eq!(issuers.ask(&one).await.unwrap().groups, ["oidc:ops"]);
    let other = signer.sign(&with(&claims(), &json!({ "iss": "https://other.example.com" })));
    assert!(issuers.authenticate(&other, time(NOW)).await.is_none(), "another's");
}

#[tokio::test(start_paused = true)]
async fn tokens_that_are_not_right_are_refused() {
    let (signer, stranger) = (Signer::new("k1"), Signer::new("k1"));
    let issuers = started(&plain(), &Pages::of(&[&signer])).await;
    for (change, why) in [
        (json!({ "aud": "other" }), "expected audience"),
        (json!({ "aud": null }), "expected audience"),
        (json!({ "exp": NOW }), "token is expired"),
        (json!({ "exp": null }), "no end"),
        (json!({ "exp": "soon" }), "no time"),
        (json!({ "nbf": NOW + 61 }), "not before"),
        (json!({ "sub": null }), "claim not present"),
        (json!({ "sub": 7 }), "no string"),
        (json!({ "sub": "" }), "empty"),
        (json!({ "groups": [7] }), "no list of strings"),
        (json!({ "groups": null, "_claim_names": { "groups": "src1" } }), "distributed"),
    ] {
        let error = issuers.ask(&signer.sign(&with(&claims(), &change))).await.unwrap_err();
        assert!(error.contains(why), "{change}: {error}");
    }
    let error = issuers.ask(&stranger.sign(&claims())).await.unwrap_err();
    assert!(error.contains("failed to verify"), "{error}");
    let good = signer.sign(&claims());
    let parts: Vec<&str> = good.split('.').collect();
    let changed = URL_SAFE_NO_PAD.encode(with(&claims(), &json!({ "sub": "root" })).to_string());
    issuers.ask(&format!("{}.{changed}.{}", parts[0], parts[2])).await.unwrap_err();
    for header in [
        json!({ "alg": "none" }),
        json!({ "alg": "HS256", "kid": "k1" }),
        json!({ "alg": "ES256", "kid": "k1", "crit": ["b64"], "b64": false }),
    ] {
        let header = URL_SAFE_NO_PAD.encode(header.to_string());
        issuers.ask(&format!("{header}.{}.{}", parts[1], parts[2])).await.unwrap_err();
    }
}

/// The public key as a shared secret: the oldest attack on such tokens.
#[tokio::test(start_paused = true)]
async fn a_public_key_is_no_shared_secret() {
    let signer = Signer::new("k1");
    let pages = Pages::of(&[&signer]);
    let secret = json!({ "kty": "oct", "kid": "k2", "k": "c2VjcmV0" });
    pages.pages.lock().insert(format!("{URL}/keys"), json!({ "keys": [signer.jwk(), secret] }));
    let issuers = started(&plain(), &pages).await;
    let jwk = signer.jwk();
    let point = [&[4][..], &URL_SAFE_NO_PAD.decode(jwk["x"].as_str().unwrap()).unwrap()].concat();
    for (kid, secret) in [("k1", point.as_slice()), ("k2", b"secret".as_slice())] {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
        let token = signing::token(Algorithm::HS256, kid, &claims(), |message| {
            ring::hmac::sign(&key, message).as_ref().to_vec()
        });
        let error = issuers.ask(&token).await.unwrap_err();
        assert!(error.contains("unsupported algorithm"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_remembered_to_its_end_and_not_beyond() {
    let signer = Signer::new("k1");
    let issuers = started(&plain(), &Pages::of(&[&signer])).await;
    let token = signer.sign(&with(&claims(), &json!({ "exp": NOW + 5 })));
    issuers.authenticate(&token, time(NOW)).await.unwrap().unwrap();
    issuers.authenticate(&token, time(NOW + 4)).await.unwrap().unwrap();
    issuers.authenticate(&token, time(NOW + 5)).await.unwrap().unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn new_keys_are_fetched_when_a_token_has_one_but_not_for_everybody() {
    let (first, second) = (Signer::new("k1"), Signer::new("k2"));
    let pages = Pages::of(&[&first]);
    let issuers = started(&plain(), &pages).await;
    pages.rotate(&[&second]);
    assert_eq!(pages.fetches(), 1);
    issuers.ask(&second.sign(&claims())).await.unwrap();
    assert_eq!(pages.fetches(), 2);
    let old = first.sign(&with(&claims(), &json!({ "jti": "1" })));
    issuers.ask(&old).await.unwrap_err();
    let made_up = Signer::new("k3");
    for i in 0..50 {
        issuers.ask(&made_up.sign(&with(&claims(), &json!({ "jti": i })))).await.unwrap_err();
    }
    assert_eq!(pages.fetches(), 1 + 5, "the first fetch, and what is allowed at once");
    tokio::time::sleep(Duration::from_secs(10)).await;
    pages.rotate(&[&second, &made_up]);
    issuers.ask(&made_up.sign(&claims())).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn keys_that_were_taken_back_are_forgotten_within_minutes() {
    let (first, second) = (Signer::new("k1"), Signer::new("k2"));
    let pages = Pages::of(&[&first, &second]);
    let issuers = started(&plain(), &pages).await;
    issuers.ask(&first.sign(&claims())).await.unwrap();
    pages.rotate(&[&second]);
    tokio::time::sleep(Duration::from_secs(301)).await;
    issuers.ask(&first.sign(&claims())).await.unwrap_err();
    issuers.ask(&second.sign(&claims())).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_is_away_is_found_when_it_comes_back() {
    let signer = Signer::new("k1");
    let pages = Pages::of(&[&signer]);
    let kept = std::mem::take(&mut *pages.pages.lock());
    let compiled = compile(&document(&plain()), &[]).unwrap();
    let web: Arc<dyn Web> = pages.clone();
    let issuers = Issuers::start(compiled, &ALGORITHMS, &Issuers::default(), &web, &Metrics::default());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let error = issuers.ask(&signer.sign(&claims())).await.unwrap_err();
    assert!(error.contains("not initialized"), "{error}");
    *pages.pages.lock() = kept;
    tokio::time::sleep(Duration::from_secs(10)).await;
    issuers.ask(&signer.sign(&claims())).await.unwrap();
    // A reload that leaves the issuer where it is goes on with its keys.
    let fetches = pages.fetches();
    let compiled = compile(&document(&plain()), &[]).unwrap();
    let again = Issuers::start(compiled, &ALGORITHMS, &issuers, &web, &Metrics::default());
    again.ask(&signer.sign(&claims())).await.unwrap();
    assert_eq!(pages.fetches(), fetches);
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_discovery_document_is_not_believed() {
    let signer = Signer::new("k1");
    let pages = Pages::of(&[&signer]);
    let other = json!({ "issuer": "https://other.example.com", "jwks_uri": format!("{URL}/keys") });
    pages.pages.lock().insert(format!("{URL}/.well-known/openid-configuration"), other);
    let compiled = compile(&document(&plain()), &[]).unwrap();
    let web: Arc<dyn Web> = pages.clone();
    let issuers = Issuers::start(compiled, &ALGORITHMS, &Issuers::default(), &web, &Metrics::default());
    tokio::time::sleep(Duration::from_secs(60)).await;
    issuers.ask(&signer.sign(&claims())).await.unwrap_err();
    assert_eq!(pages.fetches(), 0);
}

#[tokio::test(start_paused = true)]
async fn expressions_map_and_judge() {
    let signer = Signer::new("k1");
    let jwt = json!({
        "issuer": { "url": URL, "audiences": ["kube"] },
        "claimValidationRules": [
            { "claim": "hd", "requiredValue": "example.com" },
            { "expression": "claims.exp - claims.nbf <= 86400", "message": "total token lifetime must not exceed a day" },
        ],
        "claimMappings": {
            "username": { "expression": "claims.email_verified ? 'mail:' + claims.email : ''" },
            "groups": { "expression": "claims.roles.split(',')" },
            "uid": { "claim": "sub" },
            "extra": [
                { "key": "example.com/tenant", "valueExpression": "claims.?tenant.orValue('')" },
                { "key": "example.com/list", "valueExpression": "[claims.hd, claims.none]" },
            ],
        },
        "userValidationRules": [
            { "expression": "!user.username.startsWith('system:')", "message": "username cannot used reserved system: prefix" },
            { "expression": "user.groups.all(group, !group.startsWith('system:'))", "message": "reserved group" },
        ],
    });
    let issuers = started(&jwt, &Pages::of(&[&signer])).await;
    let good = json!({
        "iss": URL, "aud": "kube", "sub": "u7", "exp": NOW + 600, "nbf": NOW, "hd": "example.com", "roles": "dev,ops", "none": "",
        "email": "jane@example.com", "email_verified": true,
    });
    let user = issuers.ask(&signer.sign(&good)).await.unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("mail:jane@example.com", "u7"));
    assert_eq!(user.groups, ["dev", "ops"]);
    assert_eq!(user.extra, BTreeMap::from([("example.com/list".to_owned(), vec!["example.com".to_owned()])]));
    for (change, why) in [
        (json!({ "hd": "other.com" }), "value does not match"),
        (json!({ "hd": null }), "resulted in error"),
        (json!({ "nbf": NOW - 90_000 }), "must not exceed a day"),
        (json!({ "nbf": null }), "resulted in error"),
        (json!({ "email_verified": false }), "the username is empty"),
        (json!({ "roles": "dev,system:masters" }), "reserved group"),
        (json!({ "roles": 7 }), "resulted in error"),
    ] {
        let error = issuers.ask(&signer.sign(&with(&good, &change))).await.unwrap_err();
        assert!(error.contains(why), "{change}: {error}");
    }
}

/// Every mistake that an issuer's part can have, once.
fn wrong() -> Value {
    json!({
        "issuer": {
            "url": "https://user@id.example.com/x?y#z", "discoveryURL": "https://user@id.example.com/x?y#z/",
            "audiences": ["a", "", "a"], "certificateAuthority": "nonsense", "egressSelectorType": "cluster",
        },
        "claimValidationRules": [
            {}, { "claim": "a", "expression": "b" }, { "claim": "a", "message": "m" }, { "claim": "a" },
            { "expression": "claims.a", "requiredValue": "v" }, { "expression": "1 +" },
        ],
        "claimMappings": {
            "username": { "expression": "claims.email", "prefix": "p" },
            "groups": { "claim": "groups" },
            "uid": { "claim": "a", "expression": "b" },
            "extra": [
                { "key": "Foo", "valueExpression": "'a'" }, { "key": "x.kubernetes.io/a", "valueExpression": "'a'" },
                { "key": "e.com/a" }, { "key": "e.com/a", "valueExpression": "'a'" }, { "key": "" },
            ],
        },
        "userValidationRules": [{}, { "expression": "user.username" }, { "expression": "user.nothing == ''" }],
    })
}

/// What is said of [`wrong`], below `jwt[0].`; the rest of a line is the library's that found the mistake.
const SAID: [&str; 29] = [
    "issuer.url: Invalid value: \"https://user@id.example.com/x?y#z\": URL must not contain a username or password",
    "issuer.url: Invalid value: \"https://user@id.example.com/x?y#z\": URL must not contain a query",
    "issuer.url: Invalid value: \"https://user@id.example.com/x?y#z\": URL must not contain a fragment",
    "issuer.discoveryURL: Invalid value: \"https://user@id.example.com/x?y#z/\": discoveryURL must be different from URL",
    "issuer.audiences[1]: Required value",
    "issuer.audiences[2]: Duplicate value: \"a\"",
    "issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for multiple audiences",
    "issuer.certificateAuthority: Invalid value: \"<omitted>\"",
    "issuer.egressSelectorType: Invalid value: \"cluster\"",
    "claimValidationRules[0]: Required value: claim or expression is required",
    "claimValidationRules[1]: Invalid value: \"a\": claim and expression can't both be set",
    "claimValidationRules[2].message: Invalid value: \"m\": may not be specified when claim is set",
    "claimValidationRules[3].claim: Duplicate value: \"a\"",
    "claimValidationRules[4].requiredValue: Invalid value: \"v\": may not be specified when expression is set",
    "claimValidationRules[4].expression: Invalid value: \"claims.a\": must evaluate to bool",
    "claimValidationRules[5].expression: Invalid value: \"1 +\": compilation failed",
    "claimMappings.username.prefix: Invalid value: \"p\": may not be specified when expression is set",
    "claimMappings.groups.prefix: Required value: prefix is required when claim is set",
    "claimMappings.uid: Invalid value: \"\": claim and expression can't both be set",
    "claimMappings.extra[0].key: Invalid value: \"Foo\": must be a domain-prefixed path",
    "claimMappings.extra[0].key: Invalid value: \"Foo\": must be lowercase",
    "claimMappings.extra[1].key: Invalid value: \"x.kubernetes.io/a\": k8s.io, kubernetes.io and their subdomains",
    "claimMappings.extra[2].valueExpression: Required value",
    "claimMappings.extra[3].key: Duplicate value: \"e.com/a\"",
    "claimMappings.extra[4].key: Required value",
    "claimMappings.username.expression: Invalid value: \"claims.email\": claims.email_verified must be used",
    "userValidationRules[0].expression: Required value",
    "userValidationRules[1].expression: Invalid value: \"user.username\": must evaluate to bool",
    "userValidationRules[2].expression: Invalid value: \"user.nothing == ''\": compilation failed",
];

#[test]
fn upstreams_rules_in_its_words() {
    let errors = compile(&document(&wrong()), &[]).unwrap_err();
    let shown: Vec<String> = errors.iter().map(|e| format!("{}: {}", e.field, e.detail)).collect();
    for expected in SAID {
        let expected = format!("jwt[0].{expected}");
        assert!(
            shown.iter().any(|line| line.starts_with(&expected)),
            "{expected} is missing from {shown:#?}"
        );
    }
}

#[test]
fn issuers_are_told_apart() {
    let mut config = document(&plain());
    config.jwt.push(config.jwt[0].clone());
    let own = [URL.to_owned(), "https://b".to_owned()];
    let errors = compile(&config, &own).unwrap_err();
    let shown: Vec<String> = errors.iter().map(|e| format!("{}: {}", e.field, e.detail)).collect();
    assert_eq!(
        shown,
        [
            "jwt[0].issuer.url: Invalid value: \"https://id.example.com\": URL must not overlap with disallowed issuers: [https://b https://id.example.com]",
            "jwt[1].issuer.url: Invalid value: \"https://id.example.com\": URL must not overlap with disallowed issuers: [https://b https://id.example.com]",
            "jwt[1].issuer.url: Duplicate value: \"https://id.example.com\"",
        ]
    );
    config.jwt = vec![config.jwt[0].clone(); 65];
    let errors = compile(&config, &[]).unwrap_err();
    assert_eq!(errors[0].detail, "Too many: 65: must have at most 64 items");
}

/// Every algorithm with a key of its own, and none with another's.
#[tokio::test(start_paused = true)]
async fn each_algorithm_has_its_keys() {
    let pair = |algorithm| rcgen::KeyPair::generate_for(algorithm).unwrap().serialize_der();
    // Made for this test alone: 2048 bits, PKCS #1.
    let rsa = PrivateKey::rsa(include_bytes!("test_rsa_key.der"));
    let keys = [
        (
            rsa,
            &[
                Algorithm::RS256,
                Algorithm::RS384,
                Algorithm::RS512,
                Algorithm::PS256,
                Algorithm::PS384,
                Algorithm::PS512,
            ][..],
        ),
        (PrivateKey::p256(&pair(&rcgen::PKCS_ECDSA_P256_SHA256)), &[Algorithm::ES256]),
        (PrivateKey::p384(&pair(&rcgen::PKCS_ECDSA_P384_SHA384)), &[Algorithm::ES384]),
        (PrivateKey::ed25519(&[7; 32]), &[Algorithm::EdDSA]),
    ];
    let set: Vec<Value> = keys.iter().enumerate().map(|(i, (key, _))| key.jwk(&i.to_string())).collect();
    let pages = Pages::of(&[]);
    pages.pages.lock().insert(format!("{URL}/keys"), json!({ "keys": set }));
    let issuers = started(&plain(), &pages).await;
    let mut seen = 0;
    for (i, (key, algorithms)) in keys.iter().enumerate() {
        for algorithm in *algorithms {
            let sign = |kid: usize| key.token(*algorithm, &kid.to_string(), &claims());
            issuers.ask(&sign(i)).await.unwrap_or_else(|why| panic!("{algorithm:?}: {why}"));
            issuers.ask(&sign((i + 1) % keys.len())).await.unwrap_err();
            seen += 1;
        }
    }
    assert_eq!(seen, ALGORITHMS.len());
}
