mod certificates;
mod crossing;
mod impersonation;
mod legacy;

use super::*;
use crate::authz::testing::World;
use crate::authz::{Attributes, Authorizer, Decision, rules::Resolved};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bearer::WEBSOCKET_TOKEN;
use coracle_pki::{Leaf, PkiOptions, ServiceAccountKey};
use futures::FutureExt;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicI64, Ordering};

const START: i64 = 1_800_000_000;

struct Setup {
    world: Arc<World>,
    now: Arc<AtomicI64>,
    pki: Arc<Pki>,
    tokens: Arc<ServiceAccountTokens>,
    authenticator: Authenticator,
    _dir: tempfile::TempDir,
}

impl Setup {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let now = Arc::new(AtomicI64::new(START));
        let clock = now.clone();
        let options = PkiOptions {
            clock: Arc::new(move || Timestamp::from_second(clock.load(Ordering::SeqCst)).unwrap()),
            ..PkiOptions::default()
        };
        let pki = Pki::ensure(dir.path(), options).unwrap();
        let world = World::new();
        let object =
            |name: &str, uid: &str| json!({ "metadata": { "namespace": "a", "name": name, "uid": uid } });
        world.put("serviceaccounts.", object("bot", "u1"));
        world.put("pods.", object("web", "p1"));
        world.put("secrets.", object("box", "s1"));
        world.put("nodes.", json!({ "metadata": { "name": "n1", "uid": "n1u" } }));
        let tokens = Arc::new(ServiceAccountTokens::new(pki.service_account_key()));
        let authenticator = Authenticator::new(&pki, tokens.clone(), world.clone()).unwrap();
        Self { world, now, pki, tokens, authenticator, _dir: dir }
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_second(self.now.load(Ordering::SeqCst)).unwrap()
    }

    fn issue(&self, seconds: i64, audiences: &[&str], bound: Bound) -> String {
        let request = IssueRequest {
            namespace: "a",
            service_account: reference("bot", "u1"),
            audiences: audiences.iter().map(|a| (*a).to_owned()).collect(),
            expiration_seconds: seconds,
            bound,
        };
        self.tokens.issue(request, self.time()).unwrap().token
    }

    fn verify(&self, token: &str) -> Result<TokenUser, String> {
        self.tokens.verify(token, &[], self.world.as_ref(), self.time())
    }

    fn ask(&self, header: Option<&str>, path: &str) -> Result<UserInfo, u16> {
        let mut headers = HeaderMap::new();
        if let Some(value) = header {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        self.authenticate(None, &headers, path).map_err(|e| e.code)
    }

    /// Of what is known here: nobody is waited for.
    fn authenticate(
        &self,
        peer: Option<&PeerIdentity>,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<UserInfo, ApiError> {
        let (peer, said) = (peer.cloned().map(Arc::new), Credentials::of(headers));
        let asked = self.authenticator.authenticate(peer.as_ref(), &said, path);
        asked.now_or_never().expect("nobody is asked").map(|known| known.user)
    }

    fn token(&self, token: &str, audiences: &[&str]) -> Result<TokenUser, AuthnError> {
        let audiences: Vec<String> = audiences.iter().map(|a| (*a).to_owned()).collect();
        self.authenticator.token(token, &audiences).now_or_never().expect("nobody is asked")
    }
}

fn reference(name: &str, uid: &str) -> Reference {
    Reference { name: name.to_owned(), uid: uid.to_owned() }
}

fn pod() -> Bound {
    Bound { pod: Some(reference("web", "p1")), node: Some(reference("n1", "n1u")), ..Bound::default() }
}

fn payload(token: &str) -> Value {
    let middle = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(middle).unwrap()).unwrap()
}

#[test]
fn without_credentials_one_is_anonymous_or_sees_health_and_version_alone() {
    let setup = Setup::new();
    setup.authenticator.configure(Configured { anonymous: Anonymous::Nowhere, ..Configured::default() });
    let strict = setup;
    for path in ["/livez", "/readyz", "/healthz", "/version", "/version/", "/readyz/etcd", "/livez/ping"] {
        assert_eq!(strict.ask(None, path).unwrap(), UserInfo::anonymous(), "{path}");
    }
    let open = Setup::new();
    for path in
        ["/", "/api", "/api/v1/pods", "/metrics", "/openid/v1/jwks", "/versions", "/livezz", "/healthzs/x"]
    {
        assert_eq!(strict.ask(None, path).unwrap_err(), 401, "{path}");
        assert_eq!(open.ask(None, path).unwrap(), UserInfo::anonymous(), "{path}");
    }
}

#[test]
fn bad_credentials_are_401_everywhere() {
    let setup = Setup::new();
    for header in ["Bearer nonsense", "Bearer a.b.c", "Bearer abcdef.0123456789abcdef"] {
        for path in ["/api", "/livez"] {
            assert_eq!(setup.ask(Some(header), path).unwrap_err(), 401, "{header} {path}");
        }
    }
    for header in ["Basic YTpi", "Bearer", "Bearer "] {
        assert_eq!(setup.ask(Some(header), "/api").unwrap(), UserInfo::anonymous(), "{header}");
    }
}

#[test]
fn a_bound_token_says_and_proves_what_upstreams_does() {
    let setup = Setup::new();
    let token = setup.issue(3600, &[], pod());
    let claims = payload(&token);
    assert_eq!(claims["aud"], json!([ISSUER]));
    assert_eq!(claims["iss"], ISSUER);
    assert_eq!(claims["sub"], "system:serviceaccount:a:bot");
    assert_eq!(
        (&claims["iat"], &claims["nbf"], &claims["exp"]),
        (&json!(START), &json!(START), &json!(START + 3600))
    );
    assert_eq!(
        claims["kubernetes.io"],
        json!({
            "namespace": "a", "node": { "name": "n1", "uid": "n1u" }, "pod": { "name": "web", "uid": "p1" },
            "serviceaccount": { "name": "bot", "uid": "u1" },
        })
    );
    let user = setup.ask(Some(&format!("Bearer {token}")), "/api").unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:a:bot", "u1"));
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"]);
    let extra = |key: &str| user.extra[&format!("authentication.kubernetes.io/{key}")].clone();
    assert_eq!(extra("pod-name"), ["web"]);
    assert_eq!(extra("node-uid"), ["n1u"]);
    assert_eq!(extra("credential-id"), [format!("JTI={}", claims["jti"].as_str().unwrap())]);
}

#[test]
fn tokens_of_pods_are_extended_but_ask_for_renewal() {
    let setup = Setup::new();
    let claims = payload(&setup.issue(3607, &[], pod()));
    assert_eq!(claims["exp"], START + 365 * 24 * 3600);
    assert_eq!(claims["kubernetes.io"]["warnafter"], START + 3607);
    assert_eq!(payload(&setup.issue(3607, &["vault"], pod()))["exp"], START + 3607);
    assert_eq!(payload(&setup.issue(3607, &[], Bound::default()))["exp"], START + 3607);
}

#[test]
fn a_token_ends_with_its_time() {
    let setup = Setup::new();
    let token = setup.issue(600, &[], Bound::default());
    setup.now.store(START + 650, Ordering::SeqCst);
    setup.verify(&token).unwrap();
    setup.now.store(START + 661, Ordering::SeqCst);
    assert!(setup.verify(&token).unwrap_err().contains("expired"));
    setup.now.store(START - 61, Ordering::SeqCst);
    assert!(setup.verify(&token).unwrap_err().contains("not valid yet"));
}

#[test]
fn a_token_ends_with_what_it_is_bound_to() {
    let secret = || Bound { secret: Some(reference("box", "s1")), ..Bound::default() };
    let node = || Bound { node: Some(reference("n1", "n1u")), ..Bound::default() };
    let cases = [
        (Bound::default(), "serviceaccounts.", "a", "bot"),
        (pod(), "pods.", "a", "web"),
        (secret(), "secrets.", "a", "box"),
        (node(), "nodes.", "", "n1"),
    ];
    for (bound, resource, namespace, name) in cases {
        let setup = Setup::new();
        let token = setup.issue(3600, &[], bound);
        setup.verify(&token).unwrap();
        let original = setup.world.get(resource, namespace, name).unwrap();
        let mut deleted = (*original).clone();
        deleted["metadata"]["deletionTimestamp"] = setup.time().to_string().into();
        setup.world.put(resource, deleted);
        setup.verify(&token).expect("a minute of grace");
        setup.now.fetch_add(61, Ordering::SeqCst);
        assert!(setup.verify(&token).is_err(), "{resource} is being deleted");
        let mut other = (*original).clone();
        other["metadata"]["uid"] = "another".into();
        setup.world.put(resource, other);
        assert!(setup.verify(&token).is_err(), "{resource} is another one");
        setup.world.remove(resource, namespace, name);
        assert!(setup.verify(&token).is_err(), "{resource} is gone");
    }
}

#[test]
fn audiences_are_kept_apart() {
    let setup = Setup::new();
    let token = setup.issue(3600, &["vault", "other"], Bound::default());
    assert!(setup.verify(&token).is_err(), "not for the API");
    assert_eq!(setup.token(&token, &["x", "vault"]).unwrap().audiences, ["vault"]);
}

#[test]
fn forged_tokens_are_refused() {
    let setup = Setup::new();
    let token = setup.issue(3600, &[], Bound::default());
    let other = ServiceAccountTokens::new(&ServiceAccountKey::ephemeral().unwrap());
    assert!(other.verify(&token, &[], setup.world.as_ref(), setup.time()).is_err(), "another key");
    let parts: Vec<&str> = token.split('.').collect();
    let mut claims = payload(&token);
    claims["sub"] = "system:serviceaccount:a:root".into();
    let changed = URL_SAFE_NO_PAD.encode(claims.to_string());
    assert!(setup.verify(&format!("{}.{changed}.{}", parts[0], parts[2])).is_err());
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    assert!(setup.verify(&format!("{none}.{}.", parts[1])).is_err());
    assert!(setup.verify(&"a".repeat(100_000)).is_err());
}

#[test]
fn tokens_of_secrets_live_as_long_as_the_secret() {
    let setup = Setup::new();
    let token = setup.tokens.issue_legacy("a", &reference("bot", "u1"), "box").unwrap();
    assert!(setup.verify(&token).is_err(), "the secret does not hold it");
    let secret = |token: &str| {
        json!({
            "metadata": { "namespace": "a", "name": "box", "uid": "s1" }, "data": { "token": STANDARD.encode(token) }
        })
    };
    setup.world.put("secrets.", secret(&token));
    assert_eq!(setup.verify(&token).unwrap().user.name, "system:serviceaccount:a:bot");
    let mut given_up = secret(&token);
    given_up["metadata"]["labels"] = json!({ "kubernetes.io/legacy-token-invalid-since": "2026-01-01" });
    setup.world.put("secrets.", given_up);
    assert!(setup.verify(&token).unwrap_err().contains("marked invalid"));
    setup.world.put("secrets.", secret("another"));
    assert!(setup.verify(&token).is_err());
}

#[test]
fn bootstrap_tokens() {
    let setup = Setup::new();
    let secret = |change: &dyn Fn(&mut Value)| {
        let mut data = json!({
            "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:x", "expiration": "2030-01-01T00:00:00Z",
        });
        change(&mut data);
        for value in data.as_object_mut().unwrap().values_mut() {
            *value = STANDARD.encode(value.as_str().unwrap()).into();
        }
        let metadata = json!({ "namespace": "kube-system", "name": "bootstrap-token-abcdef" });
        json!({ "metadata": metadata, "type": "bootstrap.kubernetes.io/token", "data": data })
    };
    let ask = |change: &dyn Fn(&mut Value)| {
        setup.world.put("secrets.", secret(change));
        bootstrap_token::authenticate("abcdef.0123456789abcdef", setup.world.as_ref(), setup.time())
    };
    let user = ask(&|_| {}).unwrap().user;
    assert_eq!(user.name, "system:bootstrap:abcdef");
    assert_eq!(user.groups, ["system:bootstrappers", "system:bootstrappers:x"]);
    for (field, value) in [
        ("token-secret", "0123456789abcdeX"),
        ("usage-bootstrap-authentication", "false"),
        ("expiration", "2020-01-01T00:00:00Z"),
        ("expiration", "soon"),
        ("auth-extra-groups", "system:masters"),
        ("auth-extra-groups", "system:bootstrappers:"),
        ("auth-extra-groups", "system:bootstrappers:X"),
        ("auth-extra-groups", "system:bootstrappers:x-"),
    ] {
        assert!(ask(&|data| data[field] = value.into()).is_err(), "{field}={value}");
    }
}

#[test]
fn bootstrap_tokens_are_for_the_api_alone() {
    let setup = Setup::new();
    let data: serde_json::Map<String, Value> = [
        ("token-id", "abcdef"),
        ("token-secret", "0123456789abcdef"),
        ("usage-bootstrap-authentication", "true"),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_owned(), STANDARD.encode(v).into()))
    .collect();
    let metadata = json!({ "namespace": "kube-system", "name": "bootstrap-token-abcdef" });
    setup.world.put(
        "secrets.",
        json!({ "metadata": metadata, "type": "bootstrap.kubernetes.io/token", "data": data }),
    );
    let ask = |audiences: &[&str]| setup.token("abcdef.0123456789abcdef", audiences);
    let found = ask(&[]).unwrap();
    assert_eq!(found.audiences, [ISSUER]);
    assert_eq!(found.user.groups, ["system:bootstrappers", "system:authenticated"]);
    assert_eq!(ask(&["x", ISSUER]).unwrap().audiences, [ISSUER]);
    ask(&["x"]).unwrap_err();
}

#[test]
fn browsers_send_tokens_as_websocket_protocols() {
    let setup = Setup::new();
    let token = URL_SAFE_NO_PAD.encode(setup.issue(3600, &[], Bound::default()));
    let mut headers = HeaderMap::new();
    let value = format!("v5.channel.k8s.io, {WEBSOCKET_TOKEN}{token}");
    headers.insert(SEC_WEBSOCKET_PROTOCOL, value.parse().unwrap());
    let user = setup.authenticate(None, &headers, "/api").unwrap();
    assert_eq!(user.name, "system:serviceaccount:a:bot");
}

#[test]
fn discovery_documents_verify_our_tokens() {
    let setup = Setup::new();
    let set: jsonwebtoken::jwk::JwkSet = serde_json::from_value(oidc::jwks(&setup.tokens)).unwrap();
    let token = setup.issue(3600, &[], Bound::default());
    let header = jsonwebtoken::decode_header(&token).unwrap();
    let key = jsonwebtoken::DecodingKey::from_jwk(set.find(&header.kid.unwrap()).unwrap()).unwrap();
    let mut validation = jsonwebtoken::Validation::new(jsonwebtoken::Algorithm::ES256);
    validation.validate_exp = false;
    validation.set_audience(&[ISSUER]);
    signature::decode::<Value>(&token, &key, &validation).unwrap();
    let issuing = Issuing {
        issuers: vec!["https://a.example".to_owned(), ISSUER.to_owned()],
        audiences: vec!["api".to_owned()],
        jwks_uri: "https://192.0.2.1:6443/openid/v1/jwks".to_owned(),
        max_seconds: 0,
        extend: true,
    };
    let moved = ServiceAccountTokens::with(setup.pki.service_account_key(), issuing);
    let (kind, configuration) = oidc::respond("/.well-known/openid-configuration", &moved).unwrap();
    assert_eq!(kind, "application/json");
    assert_eq!(configuration["jwks_uri"], "https://192.0.2.1:6443/openid/v1/jwks");
    assert_eq!(configuration["issuer"], "https://a.example");
    assert_eq!(oidc::respond("/openid/v1/jwks/", &moved).unwrap().0, "application/jwk-set+json");
    assert!(oidc::respond("/openid/v1", &moved).is_none());
    // The former issuer's tokens are still believed, but only where they are for the API.
    let verify = |token: &str| moved.verify(token, &[], setup.world.as_ref(), setup.time());
    assert!(verify(&token).unwrap_err().contains("is invalid for the target audiences [\"api\"]"));
    assert_eq!(verify(&setup.issue(3600, &["api"], Bound::default())).unwrap().audiences, ["api"]);
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    thread_local!(static SETUP: Setup = Setup::new());

    /// The user's name, or the code of the refusal.
    fn with_header(name: http::HeaderName, value: &[u8]) -> Result<String, u16> {
        let headers = HeaderMap::from_iter([(name, HeaderValue::from_bytes(value).unwrap())]);
        SETUP.with(|setup| match setup.authenticate(None, &headers, "/api") {
            Ok(user) => Ok(user.name),
            Err(error) => Err(error.code),
        })
    }

    #[test]
    fn empty_tokens_and_other_schemes_are_no_credentials() {
        for value in ["Bearer", "Bearer ", "bearer    ", "Bearer  x", "Basic abc", ""] {
            assert_eq!(
                with_header(AUTHORIZATION, value.as_bytes()),
                Ok("system:anonymous".to_owned()),
                "{value:?}"
            );
        }
        let empty = with_header(SEC_WEBSOCKET_PROTOCOL, WEBSOCKET_TOKEN.as_bytes());
        assert_eq!(empty, Ok("system:anonymous".to_owned()));
        let token = SETUP.with(|setup| setup.issue(3600, &[], Bound::default()));
        let followed = with_header(AUTHORIZATION, format!(" bearer {token} more").as_bytes());
        assert_eq!(followed, Ok("system:serviceaccount:a:bot".to_owned()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_token_of_the_outside_panics_or_passes(
            token in proptest::collection::vec(prop_oneof![33..=126u8, 128..=255u8], 1..64),
        ) {
            let value = [b"Bearer ".as_slice(), &token].concat();
            prop_assert_eq!(with_header(AUTHORIZATION, &value), Err(401));
        }

        #[test]
        fn no_protocol_of_the_outside_panics_or_passes(token in "[!-+--~][ -+--~]{0,64}") {
            let value = format!("{WEBSOCKET_TOKEN}{token}");
            prop_assert_eq!(with_header(SEC_WEBSOCKET_PROTOCOL, value.as_bytes()), Err(401));
        }

        #[test]
        fn a_changed_token_is_no_token(position in 0usize..600, with in proptest::sample::select(vec!['A', 'z', '.', '-'])) {
            let refused = SETUP.with(|setup| {
                let token = setup.issue(3600, &[], Bound::default());
                let mut letters: Vec<char> = token.chars().collect();
                let at = position % letters.len();
                let differs = letters[at] != with;
                letters[at] = with;
                let changed: String = letters.into_iter().collect();
                // The last letter of a part carries bits that base64 does not use.
                let last = token.split('.').map(str::len).scan(0, |end, l| { *end += l + 1; Some(*end - 2) }).any(|l| l == at);
                !differs || last || setup.verify(&changed).is_err()
            });
            prop_assert!(refused);
        }
    }
}
