use super::*;

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn mistakes(args: &AccessArgs) -> Vec<String> {
    let mut mistakes = Vec::new();
    args.check_authentication(&mut mistakes);
    mistakes
}

fn oidc() -> AccessArgs {
    AccessArgs {
        oidc_issuer_url: text("https://id.example.com"),
        oidc_client_id: text("kube"),
        ..AccessArgs::default()
    }
}

fn file(text: &str) -> (tempfile::TempDir, AccessArgs) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("authentication.yaml");
    std::fs::write(&path, text).unwrap();
    (dir, AccessArgs { authentication_config: Some(path), ..AccessArgs::default() })
}

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";

#[test]
fn an_issuer_and_its_client_go_together() {
    assert!(mistakes(&AccessArgs::default()).is_empty());
    assert!(mistakes(&oidc()).is_empty());
    for alone in [
        AccessArgs { oidc_client_id: None, ..oidc() },
        AccessArgs { oidc_issuer_url: None, ..oidc() },
        AccessArgs { oidc_groups_claim: text("groups"), ..AccessArgs::default() },
    ] {
        assert_eq!(mistakes(&alone), [TOGETHER]);
    }
}

#[test]
fn every_mistake_of_the_flags_is_named() {
    let args = AccessArgs {
        oidc_issuer_url: text("http://id.example.com"),
        oidc_signing_algs: Some(vec!["HS256".to_owned(), "none".to_owned(), "RS256".to_owned()]),
        oidc_required_claim: Some(vec!["a".to_owned()]),
        oidc_ca_file: Some("/none/at/all".into()),
        authentication_token_webhook_version: text("v2"),
        ..oidc()
    };
    let all = mistakes(&args).join("\n");
    for word in [
        "\"HS256\"",
        "\"none\"",
        "oidc-required-claim: \"a\"",
        "/none/at/all",
        "URL scheme must be https",
        "\"v2\"",
    ] {
        assert!(all.contains(word), "{word} is missing from {all}");
    }
}

#[test]
fn names_get_a_prefix_unless_they_are_emails() {
    let prefix = |claim: Option<&str>, prefix: Option<&str>| {
        let args = AccessArgs {
            oidc_username_claim: claim.map(str::to_owned),
            oidc_username_prefix: prefix.map(str::to_owned),
            ..oidc()
        };
        args.oidc_mappings("https://id.example.com").username.prefix.unwrap()
    };
    assert_eq!(prefix(None, None), "https://id.example.com#");
    assert_eq!(prefix(Some("email"), None), "");
    assert_eq!(prefix(Some("name"), Some("-")), "");
    assert_eq!(prefix(Some("email"), Some("oidc:")), "oidc:");
}

#[test]
fn the_file_excludes_the_flags_of_what_it_says() {
    let (_dir, args) =
        file(&format!("{HEAD}anonymous: {{ enabled: true, conditions: [{{ path: /livez }}] }}\n"));
    let (_, checked) = args.configuration().unwrap();
    assert_eq!(checked.anonymous, Some(Anonymous::Paths(vec!["/livez".to_owned()])));
    let both = AccessArgs { anonymous_auth: Some(true), ..args.clone() };
    assert!(mistakes(&both)[0].contains("--anonymous-auth flag cannot be set"), "{:?}", mistakes(&both));
    let both = AccessArgs { authentication_config: args.authentication_config, ..oidc() };
    assert_eq!(mistakes(&both), ["authentication-config file and oidc-* flags are mutually exclusive"]);
}

#[test]
fn every_mistake_of_the_file_is_named_with_its_path_and_field() {
    let (_dir, args) = file(&format!("{HEAD}jwt:\n- issuer: {{ url: 'http://a', audiences: [x, x] }}\n"));
    let path = args.authentication_config.clone().unwrap();
    let all = mistakes(&args);
    assert_eq!(all.len(), 4, "{all:?}");
    for (mistake, field) in all.iter().zip([
        "jwt[0].issuer.url: Invalid value: \"http://a\": URL scheme must be https",
        "jwt[0].issuer.audiences[1]: Duplicate value: \"x\"",
        "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny",
        "jwt[0].claimMappings.username: Required value: claim or expression is required",
    ]) {
        assert!(
            mistake.starts_with(&format!("authentication-config: {}: {field}", path.display())),
            "{mistake}"
        );
    }
    let (_dir, unknown) = file(&format!("{HEAD}jwts: []\n"));
    assert!(mistakes(&unknown)[0].contains("jwts"), "{:?}", mistakes(&unknown));
    let gone = AccessArgs { authentication_config: Some("/none/at/all".into()), ..AccessArgs::default() };
    assert!(mistakes(&gone)[0].contains("/none/at/all"), "{:?}", mistakes(&gone));
}
