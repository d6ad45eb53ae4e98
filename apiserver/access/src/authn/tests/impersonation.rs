//! Acting as somebody else, for those who may.

use super::*;

/// Allows what is listed as `group/resource/subresource/namespace/name`.
struct Allow(&'static [&'static str]);

impl Authorizer for Allow {
    fn authorize(&self, a: &Attributes<'_>) -> Decision {
        let verb = a.verb.strip_prefix("impersonate").expect("nothing else is asked");
        let verb = verb.trim_start_matches(':');
        let asked = [a.group, a.resource, a.subresource, a.namespace, a.name].join("/");
        let asked = if verb.is_empty() { asked } else { format!("{verb} {asked}") };
        match self.0.contains(&asked.as_str()) {
            true => Decision::Allow(String::new()),
            false => Decision::NoOpinion(String::new()),
        }
    }

    fn rules_for(&self, _: &UserInfo, _: &str) -> Resolved {
        Resolved::default()
    }
}

fn impersonation(
    headers: &[(&'static str, &str)],
    allow: &'static [&'static str],
) -> Result<Option<UserInfo>, u16> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, value.parse().unwrap());
    }
    let admin = UserInfo::authenticated("admin", &[]);
    let request = Attributes::resource(&admin, "list", "", "pods", "a");
    impersonate_request(&request, &Credentials::of(&map), &Allow(allow)).map_err(|e| e.code)
}

#[test]
fn one_user_is_impersonated() {
    let allow: &[&str] = &["/users///jane", "/users///root", "authentication.k8s.io/uids///1"];
    assert_eq!(impersonation(&[("impersonate-user", "jane"), ("impersonate-user", "root")], allow), Err(400));
    let uids = [("impersonate-user", "jane"), ("impersonate-uid", "1"), ("impersonate-uid", "1")];
    assert_eq!(impersonation(&uids, allow), Err(400));
}

#[test]
fn impersonation_asks_for_each_part() {
    assert_eq!(impersonation(&[], &[]), Ok(None));
    assert_eq!(impersonation(&[("impersonate-user", "jane")], &[]), Err(403));
    let jane = impersonation(&[("impersonate-user", "jane")], &["/users///jane"]).unwrap().unwrap();
    assert_eq!((jane.name.as_str(), jane.groups), ("jane", vec!["system:authenticated".to_owned()]));
    let with_group = [("impersonate-user", "jane"), ("impersonate-group", "ops")];
    assert_eq!(impersonation(&with_group, &["/users///jane"]), Err(403));
    let both = impersonation(&with_group, &["/users///jane", "/groups///ops"]).unwrap().unwrap();
    assert_eq!(both.groups, ["ops", "system:authenticated"]);
    assert_eq!(impersonation(&[("impersonate-group", "ops")], &["/groups///ops"]), Err(400));
    let extra = [("impersonate-user", "jane"), ("impersonate-extra-a%2fb", "v")];
    let allow = &["/users///jane", "authentication.k8s.io/userextras/a/b//v"];
    assert_eq!(impersonation(&extra, allow).unwrap().unwrap().extra["a/b"], ["v"]);
    let account = [("impersonate-user", "system:serviceaccount:a:bot")];
    let bot = impersonation(&account, &["/serviceaccounts//a/bot"]).unwrap().unwrap();
    assert_eq!(bot.groups, ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"]);
}

#[test]
fn groups_of_service_accounts_are_added_only_where_none_are_asked_for() {
    let account = [("impersonate-user", "system:serviceaccount:a:bot"), ("impersonate-group", "ops")];
    let allow = &["/serviceaccounts//a/bot", "/groups///ops"];
    let bot = impersonation(&account, allow).unwrap().unwrap();
    assert_eq!(bot.groups, ["ops", "system:authenticated"]);
    let out = [("impersonate-user", "jane"), ("impersonate-group", "system:unauthenticated")];
    let jane = impersonation(&out, &["/users///jane", "/groups///system:unauthenticated"]).unwrap().unwrap();
    assert_eq!(jane.groups, ["system:unauthenticated"]);
    // No service account has such a name: it is a user like others.
    let odd = [("impersonate-user", "system:serviceaccount:A:bot")];
    let odd = impersonation(&odd, &["/users///system:serviceaccount:A:bot"]).unwrap().unwrap();
    assert_eq!(odd.groups, ["system:authenticated"]);
}

fn constrained(
    requester: &UserInfo,
    headers: &[(&'static str, &str)],
    allow: &'static [&'static str],
) -> Result<UserInfo, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, value.parse().unwrap());
    }
    let request = Attributes::resource(requester, "list", "", "pods", "a");
    let found =
        impersonate_request(&request, &Credentials::of(&map), &Allow(allow)).map_err(|e| e.message)?;
    Ok(found.expect("headers were sent"))
}

#[test]
fn constrained_impersonation_asks_for_the_request_too() {
    let admin = UserInfo::authenticated("admin", &[]);
    let jane = [("impersonate-user", "jane"), ("impersonate-group", "ops")];
    let both: &[&str] = &[
        "user-info authentication.k8s.io/users///jane",
        "user-info authentication.k8s.io/groups///ops",
        "-on:user-info:list /pods//a/",
    ];
    assert_eq!(constrained(&admin, &jane, both).unwrap().groups, ["ops", "system:authenticated"]);
    let refused = constrained(&admin, &jane, &["user-info authentication.k8s.io/users///jane"]).unwrap_err();
    assert!(refused.contains("cannot impersonate-on:user-info:list resource \"pods\""), "{refused}");
    assert_eq!(constrained(&admin, &jane, &["/users///jane", "/groups///ops"]).unwrap().name, "jane");
    let masters = [("impersonate-user", "jane"), ("impersonate-group", "system:masters")];
    let refused = constrained(
        &admin,
        &masters,
        &["user-info authentication.k8s.io/users///jane", "-on:user-info:list /pods//a/"],
    );
    assert!(refused.unwrap_err().ends_with("impersonating the system:masters group is not allowed"));
}

#[test]
fn a_service_account_becomes_the_node_it_is_on() {
    let mut agent = UserInfo::authenticated("system:serviceaccount:a:agent", &[]);
    agent.extra.insert("authentication.kubernetes.io/node-name".to_owned(), vec!["n1".to_owned()]);
    let allow = &["-on:associated-node:list /pods//a/", "associated-node authentication.k8s.io/nodes///*"];
    let node = constrained(&agent, &[("impersonate-user", "system:node:n1")], allow).unwrap();
    assert_eq!(node.groups, ["system:nodes", "system:authenticated"]);
    constrained(&agent, &[("impersonate-user", "system:node:n2")], allow).unwrap_err();
    let any = &["-on:arbitrary-node:list /pods//a/", "arbitrary-node authentication.k8s.io/nodes///n2"];
    constrained(&agent, &[("impersonate-user", "system:node:n2")], any).unwrap();
    let account =
        &["-on:serviceaccount:list /pods//a/", "serviceaccount authentication.k8s.io/serviceaccounts//b/bot"];
    let bot = constrained(&agent, &[("impersonate-user", "system:serviceaccount:b:bot")], account).unwrap();
    assert_eq!(bot.groups[1], "system:serviceaccounts:b");
}
