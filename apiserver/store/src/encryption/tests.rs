//! Every provider: what it writes, what it refuses, and values that other implementations of the formats made.

use super::cipher::Cipher;
use super::config::{ConfigError, EncryptionConfiguration};
use super::{OpenError, Rules, path};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use proptest::prelude::*;
use std::path::Path;

const SECRET: &str = "secrets./default/a";
const PLAIN: &[u8] = br#"{"kind":"Secret"}"#;
/// 32 bytes from 0 on.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER_KEY: &str = "//79/Pv6+fj39vX08/Lx8O/u7ezr6uno5+bl5OPi4eA=";

pub(super) fn parse(text: &str) -> Result<EncryptionConfiguration, ConfigError> {
    EncryptionConfiguration::parse(text, Path::new("f.yaml"))
}

/// Of Secrets.
fn rules(providers: &str) -> Rules {
    let head = "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1";
    let text = format!("{head}\nresources: [{{resources: [secrets], providers: [{providers}]}}]");
    Rules::new(&parse(&text).unwrap(), None)
}

fn keys(provider: &str, name: &str, secret: &str) -> String {
    format!("{{{provider}: {{keys: [{{name: {name}, secret: {secret}}}]}}}}")
}

fn seal(rules: &Rules, key: &str) -> Bytes {
    rules.chain_of(key).seal(&Bytes::from_static(PLAIN), &path(key)).unwrap()
}

fn open(rules: &Rules, key: &str, stored: &[u8]) -> Result<(Bytes, bool), OpenError> {
    let opened = rules.chain_of(key).open(&Bytes::copy_from_slice(stored), &path(key));
    opened.map(|opened| (opened.value, opened.stale))
}

#[test]
fn paths_are_upstreams() {
    assert_eq!(path("secrets./default/a"), "/registry/secrets/default/a");
    assert_eq!(path("nodes.//n"), "/registry/nodes/n");
    assert_eq!(path("toys.example.com/ns/t"), "/registry/example.com/toys/ns/t");
}

#[test]
fn every_provider_reads_what_it_wrote_and_nothing_else() {
    for (provider, bound) in [("secretbox", false), ("aesgcm", true), ("aescbc", false)] {
        let own = rules(&keys(provider, "k1", KEY));
        let stored = seal(&own, SECRET);
        assert!(stored.starts_with(format!("k8s:enc:{provider}:v1:k1:").as_bytes()));
        assert!(!stored.windows(6).any(|part| part == b"Secret"), "{provider} hides the text");
        assert_ne!(stored, seal(&own, SECRET), "{provider} never writes the same twice");
        assert_eq!(open(&own, SECRET, &stored).unwrap(), (Bytes::from_static(PLAIN), false));
        // Another object's value in its place.
        assert_eq!(open(&own, "secrets./default/b", &stored).is_err(), bound, "{provider}");
        let stranger = rules(&keys(provider, "k1", OTHER_KEY));
        let opened = open(&stranger, SECRET, &stored);
        // Nothing authenticates aescbc: one in 256 times garbage ends like padding.
        let is_refused = opened.as_ref().map_or(true, |(value, _)| provider == "aescbc" && value != PLAIN);
        assert!(is_refused, "{provider} with another key");
        let renamed = rules(&keys(provider, "k2", KEY));
        assert!(matches!(open(&renamed, SECRET, &stored), Err(OpenError::NoKey(_))), "{provider}");
        let head = format!("k8s:enc:{provider}:v1:k1:").len();
        for length in head..stored.len() {
            assert!(open(&own, SECRET, &stored[..length]).is_err(), "{provider} cut to {length}");
        }
        assert!(matches!(open(&own, SECRET, PLAIN), Err(OpenError::NoPrefix)), "plain without identity");
        let plain = rules("{identity: {}}");
        assert!(matches!(open(&plain, SECRET, &stored), Err(OpenError::Encrypted)), "{provider}");
    }
}

#[test]
fn the_first_writes_and_all_read() {
    let boxed = rules(&keys("secretbox", "k1", KEY));
    let stored = seal(&boxed, SECRET);
    let gcm = keys("aesgcm", "k1", KEY);
    let both = rules(&format!("{gcm}, {}, {{identity: {{}}}}", keys("secretbox", "k1", KEY)));
    assert_eq!(open(&both, SECRET, &stored).unwrap(), (Bytes::from_static(PLAIN), true), "stale");
    assert_eq!(open(&both, SECRET, PLAIN).unwrap(), (Bytes::from_static(PLAIN), true), "plain is stale too");
    let new = seal(&both, SECRET);
    assert_eq!(open(&both, SECRET, &new).unwrap(), (Bytes::from_static(PLAIN), false));
    let chain = both.chain_of(SECRET);
    assert_eq!([&new[..], &stored, PLAIN].map(|value| chain.is_current(value)), [true, false, false]);
    // Two keys of one provider, and one provider twice.
    let two =
        format!("{{secretbox: {{keys: [{{name: k2, secret: {OTHER_KEY}}}, {{name: k1, secret: {KEY}}}]}}}}");
    let again = format!("{}, {}", keys("secretbox", "k1", OTHER_KEY), keys("secretbox", "k1", KEY));
    for providers in [two, again] {
        assert_eq!(open(&rules(&providers), SECRET, &stored).unwrap(), (Bytes::from_static(PLAIN), true));
    }
    let plain_first = rules(&format!("{{identity: {{}}}}, {}", keys("secretbox", "k1", KEY)));
    assert_eq!(open(&plain_first, SECRET, &stored).unwrap(), (Bytes::from_static(PLAIN), true));
    assert_eq!(seal(&plain_first, SECRET), PLAIN, "back to plain");
}

/// Made by OpenSSL, through Python's `cryptography`; for AES-GCM bound to `/registry/secrets/default/a`.
#[test]
fn what_others_wrote_is_read() {
    let key: Vec<u8> = (0..32).collect();
    let bound = path(SECRET);
    for (cipher, sealed) in [
        (Cipher::aes_gcm(&key), "ZGVmZ2hpamtsbW5vMzm1DxeNdKQcMTqLqAAe3z9jRkynrAu/tIM+EVnTcK8U"),
        (Cipher::aes_gcm(&key[..16]), "ZGVmZ2hpamtsbW5vYUAlzLVmmsC5bTJz9K9fzk0Q4Uykjvrl7Bu39xb7GDl4"),
        (Cipher::aes_cbc(&key[..16]), "EBESExQVFhcYGRobHB0eHyCVgboLCXbws11MUQfTK5WSqwkNIdmltrGUL2oku7RY"),
        (Cipher::aes_cbc(&key[..24]), "EBESExQVFhcYGRobHB0eH9unpOlw/sDnSIogbeSeu0t+9qgKGUe5ZXbuHS5aTC2Z"),
        (Cipher::aes_cbc(&key), "EBESExQVFhcYGRobHB0eH5bVOz8dRzfvUer175DBXKgkfzEokhvpc1ffd/YQF0ob"),
    ] {
        let sealed = STANDARD.decode(sealed).unwrap();
        assert_eq!(cipher.unwrap().open(&sealed, bound.as_bytes()).unwrap(), PLAIN);
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// The test vector of NaCl's own documentation ("Cryptography in NaCl", section 10).
#[test]
fn secretbox_is_nacls() {
    let key = hex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389");
    let nonce = hex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37");
    let plain = hex(
        "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c6129
         6cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde
         048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705",
    );
    let sealed = hex(
        "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186a
         c0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae
         90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74
         e355a5",
    );
    let cipher = Cipher::secretbox(&key).unwrap();
    assert_eq!(cipher.open(&[nonce, sealed].concat(), b"").unwrap(), plain);
}

#[test]
fn the_first_entry_that_names_a_resource_is_its() {
    let text = format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n\
         - {{resources: [events], providers: [identity: {{}}]}}\n\
         - {{resources: [secrets, toys.example.com], providers: [{}]}}\n\
         - {{resources: ['*.apps'], providers: [{}]}}\n\
         - {{resources: ['*.'], providers: [{}]}}\n\
         - {{resources: ['*.*'], providers: [{}]}}\n",
        keys("secretbox", "a", KEY),
        keys("secretbox", "b", KEY),
        keys("secretbox", "c", KEY),
        keys("secretbox", "d", KEY),
    );
    let rules = Rules::new(&parse(&text).unwrap(), None);
    for (key, name) in [
        ("events./n/e", ""),
        ("secrets./n/s", "a"),
        ("toys.example.com/n/t", "a"),
        ("deployments.apps/n/d", "b"),
        ("configmaps./n/c", "c"),
        ("jobs.batch/n/j", "d"),
    ] {
        let prefix = if name.is_empty() { String::new() } else { format!("k8s:enc:secretbox:v1:{name}:") };
        assert!(seal(&rules, key).starts_with(prefix.as_bytes()), "{key}");
    }
    assert!(rules.chain_of("events./n/e").is_plain());
}

#[test]
fn every_mistake_is_told_at_once() {
    let text = "kind: EncryptionConfiguration
apiVersion: apiserver.config.k8s.io/v1
resources:
- resources: [Secrets, '*', pods.*, pods.extensions, jobs.events.k8s.io, serviceipallocations]
  providers:
  - aesgcm: {keys: [{name: '', secret: c2hvcnQ=}, {name: k, secret: '!'}, {name: l}, {name: m, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYX}]}
  - aescbc: {keys: []}
  - secretbox: {keys: [{name: k, secret: AAECAwQFBgcICQoLDA0ODw==}]}
  - {}
  - {identity: {}, aescbc: {keys: []}}
  - kms: {name: 'a:b', apiVersion: v2, endpoint: 'tcp://x', timeout: 0s, cachesize: 1}
  - kms: {name: c, endpoint: unix:///s}
  - kms: {name: c, apiVersion: v3, endpoint: ''}
- resources: [secrets, secrets, '*.']
- providers: [identity: {}]
";
    let mistakes = match parse(text).err() {
        Some(ConfigError::Invalid { mistakes, .. }) => mistakes,
        other => panic!("{other:?}"),
    };
    let p = "resources[0].providers";
    let r = "resources[0].resources";
    let expected = [
        format!("{r}: Invalid value: [\"Secrets\", \"*\", \"pods.*\", \"pods.extensions\", \"jobs.events.k8s.io\", \"serviceipallocations\"]: using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked"),
        format!("{r}[0]: Invalid value: \"Secrets\": resource name should not contain capital letters"),
        format!("{r}[1]: Invalid value: \"*\": use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"),
        format!("{r}[2]: Invalid value: \"pods.*\": encrypting the same resource across groups is not supported"),
        format!("{r}[3]: Invalid value: \"pods.extensions\": 'extensions' group has been removed and cannot be used for encryption"),
        format!("{r}[4]: Invalid value: \"jobs.events.k8s.io\": '*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"),
        format!("{r}[5]: Invalid value: \"serviceipallocations\": resources which do not have REST API/s cannot be encrypted"),
        format!("{p}[0].aesgcm.keys[0].name: Required value: name is a mandatory field for a key"),
        format!("{p}[0].aesgcm.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 5, expected one of [16 24 32]"),
        format!("{p}[0].aesgcm.keys[1].secret: Invalid value: \"REDACTED\": secrets must be base64 encoded"),
        format!("{p}[0].aesgcm.keys[2].secret: Required value: secret is a mandatory field for a key"),
        format!("{p}[0].aesgcm.keys[3].secret: Invalid value: \"REDACTED\": AES-192 is not supported by aesgcm here, use a key of 16 or 32 bytes"),
        format!("{p}[1].aescbc.keys: Required value: at least one keys is required"),
        format!("{p}[2].secretbox.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 16, expected one of [32]"),
        format!("{p}[3]: Invalid value: provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"),
        format!("{p}[4]: Invalid value: more than one provider specified in a single element, should split into different list elements"),
        format!("{p}[5].kms.name: Invalid value: \"a:b\": invalid KMS provider name a:b, must not contain ':'"),
        format!("{p}[5].kms.timeout: Invalid value: \"0s\": timeout should be a positive value"),
        format!("{p}[5].kms.endpoint: Invalid value: \"tcp://x\": unsupported scheme \"tcp\" for KMS provider, only unix is supported"),
        format!("{p}[5].kms.cachesize: Invalid value: 1: cachesize is not supported in v2"),
        format!("{p}[6].kms.apiVersion: Invalid value: \"v1\": KMSv1 is deprecated and not supported, use KMSv2 instead: apiVersion v2"),
        format!("{p}[7].kms.name: Invalid value: \"c\": duplicate KMS provider name c, names must be unique"),
        format!("{p}[7].kms.endpoint: Invalid value: \"\": endpoint is a mandatory field for a kms"),
        format!("{p}[7].kms.apiVersion: Invalid value: \"v3\": unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported"),
        "resources[1].resources: Invalid value: [\"secrets\", \"secrets\", \"*.\"]: the same resource cannot be specified multiple times".to_owned(),
        "resources[1].resources: Invalid value: [\"secrets\", \"secrets\", \"*.\"]: using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked".to_owned(),
        "resources[1].providers: Required value: at least one resources[1].providers is required".to_owned(),
        "resources[2].resources: Required value: at least one resources[2].resources is required".to_owned(),
    ];
    assert_eq!(mistakes, expected);
}

#[test]
fn files_of_another_kind_are_refused() {
    let none =
        parse("kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources: []\n");
    let none = none.err().unwrap().to_string();
    assert_eq!(none, "f.yaml: resources: Required value: at least one resources is required");
    assert!(matches!(parse(" \n"), Err(ConfigError::Empty { .. })));
    let other = parse("kind: EncryptionConfig\napiVersion: v1\n").err().unwrap().to_string();
    assert!(other.ends_with("got v1 EncryptionConfig"), "{other}");
    let key = format!(
        "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources: [\n{KEY}\n"
    );
    let told = parse(&key).err().unwrap().to_string();
    assert!(!told.contains(&KEY[..12]), "a key stands in {told}");
}

proptest! {
    #[test]
    fn any_value_comes_back(plain in proptest::collection::vec(any::<u8>(), 0..400), name in "[a-z]{1,20}") {
        let key = format!("secrets./default/{name}");
        for provider in ["secretbox", "aesgcm", "aescbc"] {
            let rules = rules(&keys(provider, "k", KEY));
            let plain = Bytes::from(plain.clone());
            let stored = rules.chain_of(&key).seal(&plain, &path(&key)).unwrap();
            prop_assert_eq!(open(&rules, &key, &stored).unwrap(), (plain, false));
        }
    }

    /// One bit of what authenticates is enough; whatever the bytes, nothing panics.
    #[test]
    fn a_flipped_bit_is_noticed(at in 0usize..1000, bit in 0u8..8) {
        for (provider, noticed) in [("secretbox", true), ("aesgcm", true), ("aescbc", false)] {
            let rules = rules(&keys(provider, "k", KEY));
            let stored = seal(&rules, SECRET);
            let head = format!("k8s:enc:{provider}:v1:k:").len();
            let mut bad = stored.to_vec();
            let at = head + at % (stored.len() - head);
            bad[at] ^= 1 << bit;
            let opened = open(&rules, SECRET, &bad);
            prop_assert!(!noticed || opened.is_err(), "{} at {}", provider, at);
        }
    }

    #[test]
    fn any_bytes_are_refused(tail in proptest::collection::vec(any::<u8>(), 0..200)) {
        for provider in ["secretbox", "aesgcm"] {
            let rules = rules(&keys(provider, "k", KEY));
            let bad = [format!("k8s:enc:{provider}:v1:k:").as_bytes(), &tail].concat();
            prop_assert!(open(&rules, SECRET, &bad).is_err());
        }
    }
}
