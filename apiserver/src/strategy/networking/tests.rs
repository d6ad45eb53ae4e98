use super::*;
use crate::strategy::testing::World;

fn errors(strategy: &dyn Strategy, mut object: Object) -> Vec<String> {
    strategy.defaults(&mut object);
    let mut errors = Vec::new();
    strategy.validate(&object, &World::default().env(), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn ingresses() {
    let path = |backend: Value| {
        json!({ "metadata": { "name": "i" }, "spec": { "rules": [{ "host": "a.org",
            "http": { "paths": [{ "path": "/", "pathType": "Prefix", "backend": backend }] } }] } })
    };
    let good = path(json!({ "service": { "name": "s", "port": { "number": 80 } } }));
    assert_eq!(errors(&Ingresses, good.clone()), [""; 0]);
    assert_eq!(Ingresses.row(&good, Timestamp::UNIX_EPOCH), ["i", "<none>", "a.org", "", "80", "<unknown>"]);
    assert_eq!(
        errors(&Ingresses, path(json!({ "service": { "name": "s" } }))),
        ["spec.rules[0].http.paths[0].backend.service: Required value: port name or number is required"]
    );
    assert_eq!(
        errors(&Ingresses, json!({})),
        ["spec: Invalid value: []: either `defaultBackend` or `rules` must be specified"]
    );
}

#[test]
fn network_policies() {
    let mut object = json!({ "spec": { "egress": [{ "ports": [{ "port": 1 }] }] } });
    NetworkPolicies.defaults(&mut object);
    assert_eq!(object["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(object["spec"]["egress"][0]["ports"][0]["protocol"], "TCP");
    let block = json!({ "spec": { "ingress": [{ "from": [{ "ipBlock": { "cidr": "10.0.0.0/8", "except": ["11.0.0.0/8"] } }, {}] }] } });
    assert_eq!(
        errors(&NetworkPolicies, block),
        [
            "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/8\": must be a strict subset of `cidr`: \"10.0.0.0/8\"",
            "spec.ingress[0].from[1]: Required value: must specify a peer",
        ]
    );
}

#[test]
fn addresses() {
    let object = json!({ "metadata": { "name": "10.43.0.1" }, "spec": { "parentRef": { "resource": "services", "namespace": "default", "name": "kubernetes" } } });
    assert_eq!(errors(&IpAddresses, object.clone()), [""; 0]);
    assert_eq!(IpAddresses.row(&object, Timestamp::UNIX_EPOCH)[1], "services/default/kubernetes");
    assert_eq!(errors(&ServiceCidrs, json!({})), ["spec.cidrs: Required value: at least one CIDR required"]);
}
