//! A token for one audience must not become one for another, nor outlive what it hangs on, because it was seen before.

use super::*;

fn by_websocket(token: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let value = format!("{WEBSOCKET_TOKEN}{}", URL_SAFE_NO_PAD.encode(token));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, value.parse().unwrap());
    headers
}

#[test]
fn audiences_cannot_be_smuggled_into_a_token() {
    let setup = Setup::new();
    let token = setup.issue(3600, &["vault"], Bound::default());
    let joined = format!("{token}\0vault");
    let ask = || setup.authenticate(None, &by_websocket(joined.as_bytes()), "/apis").map_err(|e| e.code);
    assert_eq!(ask().unwrap_err(), 401);
    assert_eq!(setup.token(&token, &["vault"]).unwrap().audiences, ["vault"]);
    assert_eq!(ask().unwrap_err(), 401);
    assert_eq!(setup.authenticate(None, &by_websocket(token.as_bytes()), "/apis").unwrap_err().code, 401);
    setup.token(&joined, &[]).unwrap_err();
    setup.token(&joined, &["vault"]).unwrap_err();
}

#[test]
fn tokens_are_visible_ascii_wherever_they_come_from() {
    let setup = Setup::new();
    let good = setup.issue(3600, &[], Bound::default());
    setup.authenticate(None, &by_websocket(good.as_bytes()), "/apis").unwrap();
    for bad in [
        format!("{good}\0"),
        format!("{good} "),
        format!("{good}\n"),
        format!("{good}\u{e9}"),
        format!("\u{7f}{good}"),
    ] {
        let refused = setup.authenticate(None, &by_websocket(bad.as_bytes()), "/apis").unwrap_err();
        assert_eq!(refused.code, 401, "{bad:?}");
        assert_eq!(setup.token(&bad, &[]).unwrap_err(), AuthnError::Foreign, "{bad:?}");
    }
}

#[test]
fn what_was_accepted_a_moment_ago_is_judged_again() {
    let setup = Setup::new();
    let token = setup.issue(600, &[], pod());
    setup.token(&token, &[]).unwrap();
    setup.token(&token, &["vault"]).unwrap_err();
    setup.now.fetch_add(600 + 61, Ordering::SeqCst);
    setup.token(&token, &[]).unwrap_err();
    setup.now.fetch_sub(600, Ordering::SeqCst);
    setup.token(&token, &[]).unwrap();
    setup.world.remove("pods.", "a", "web");
    setup.token(&token, &[]).unwrap_err();
    let token = setup.issue(600, &[], Bound::default());
    setup.token(&token, &[]).unwrap();
    setup.world.remove("serviceaccounts.", "a", "bot");
    setup.token(&token, &[]).unwrap_err();
}

#[test]
fn anonymous_requests_by_path() {
    let setup = Setup::new();
    let paths = Anonymous::Paths(vec!["/livez".to_owned()]);
    setup.authenticator.configure(Configured { anonymous: paths, ..Configured::default() });
    assert_eq!(setup.ask(None, "/livez").unwrap(), UserInfo::anonymous());
    for path in ["/livez/", "/livez/ping", "/readyz", "/version", "/api", "/"] {
        assert_eq!(setup.ask(None, path).unwrap_err(), 401, "{path}");
    }
}
