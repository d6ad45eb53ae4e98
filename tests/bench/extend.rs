//! What extending the API costs: custom resources against built-in ones, a policy on every write, a webhook that does
//! nothing.

use crate::http::Call;
use crate::load::{Answers, Limit, closed_loop, count};
use crate::server::{ROOTLESS, Server};
use crate::table::{Row, figure};
use crate::writes::config_map;
use crate::{Error, Settings};
use coracle_tests::Hook;
use coracle_tests::hook::review;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
const NOTES: &str = "/apis/bench.coracle.dev/v1/namespaces/default/notes";

/// As deep as a ConfigMap and with as much to check: a map of texts with a limit, a list by key, a rule.
fn definition() -> Value {
    let entry = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "size": {"type": "integer", "minimum": 0}}});
    let entries = json!({"type": "array", "maxItems": 20, "items": entry, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]});
    let data = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let rule = json!([{"rule": "self.low <= self.high", "message": "low must not be over high"}]);
    let bounds = json!({"type": "object", "properties": {"low": {"type": "integer"}, "high": {"type": "integer"}}, "x-kubernetes-validations": rule});
    let spec = json!({"type": "object", "properties": {"data": data, "entries": entries, "bounds": bounds}});
    let version = json!({"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "notes.bench.coracle.dev"},
        "spec": {"group": "bench.coracle.dev", "scope": "Namespaced", "names": {"plural": "notes", "singular": "note", "kind": "Note"}, "versions": [version]},
    })
}

fn note(name: &str, n: u64) -> Value {
    json!({
        "apiVersion": "bench.coracle.dev/v1", "kind": "Note", "metadata": {"name": name},
        "spec": {"data": {"n": n.to_string(), "a": "b"}, "entries": [{"name": "one", "size": 1}], "bounds": {"low": 1, "high": 2}},
    })
}

/// The same text in a built-in kind.
fn twin(name: &str, n: u64) -> Value {
    let spec = note(name, n)["spec"].to_string();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": n.to_string(), "a": "b", "spec": spec}})
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub async fn run(settings: &Settings) -> Result<Vec<Row>, Error> {
    let server = Server::start(&settings.binary, &ROOTLESS).await?;
    server.namespace("default").await?;
    served(&server).await?;
    let mut rows = Vec::new();
    rows.extend(against_built_in(settings, &server).await?);
    rows.extend(policy(settings, &server).await?);
    rows.extend(webhook(settings, &server).await?);
    rows.extend(published(&server).await?);
    drop(server);
    rows.extend(memory(settings).await?);
    Ok(rows)
}

/// Creates the definition and waits until it is served.
async fn served(server: &Server) -> Result<(), Error> {
    let mut connection = server.target.connect().await?;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    connection.call(Call::post(path.to_owned(), definition().to_string())).await?;
    let begun = Instant::now();
    while let Err(error) = connection.call(Call::get(NOTES)).await {
        if begun.elapsed() > Duration::from_secs(10) {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// A load and what each call cost the server's processor, in microseconds.
async fn measured<F>(
    settings: &Settings,
    server: &Server,
    clients: usize,
    call: F,
) -> Result<(Answers, f64), Error>
where
    F: Fn(u64) -> Call + Send + Sync + 'static,
{
    let before = server.process().cpu()?;
    let done = closed_loop(&server.target, clients, Limit::time(settings.time(4)), call).await?;
    let cpu = (server.process().cpu()? - before).as_secs_f64() * 1e6 / count(done.latencies.len());
    Ok((done, cpu))
}

async fn against_built_in(settings: &Settings, server: &Server) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    let built_in = measured(settings, server, 16, |n| {
        Call::post(MAPS.to_owned(), twin(&format!("made-{n}"), n).to_string())
    })
    .await?;
    let custom = measured(settings, server, 16, |n| {
        Call::post(NOTES.to_owned(), note(&format!("made-{n}"), n).to_string())
    })
    .await?;
    rows.extend(compared("create", &built_in, &custom));
    let applied = |base: &'static str, make: fn(&str, u64) -> Value| {
        move |n: u64| {
            let name = format!("applied-{}", n % 1000);
            Call::apply(format!("{base}/{name}?fieldManager=bench"), make(&name, n).to_string())
        }
    };
    let built_in = measured(settings, server, 16, applied(MAPS, twin)).await?;
    let custom = measured(settings, server, 16, applied(NOTES, note)).await?;
    rows.extend(compared("apply", &built_in, &custom));
    Ok(rows)
}

fn compared(verb: &str, built_in: &(Answers, f64), custom: &(Answers, f64)) -> Vec<Row> {
    let mut rows = Vec::new();
    for (what, (done, cpu)) in [("a ConfigMap", built_in), ("a custom resource", custom)] {
        let n = done.latencies.len();
        rows.push(figure(format!("{verb} {what} of the same text, 16 clients"), done.per_second(), "/s", n));
        rows.push(figure(format!("{verb} {what} of the same text: server CPU each"), *cpu, "us", n));
    }
    let n = custom.0.latencies.len();
    rows.push(figure(
        format!("{verb} a custom resource: CPU against a ConfigMap's"),
        custom.1 / built_in.1,
        "x",
        n,
    ));
    rows
}

/// One binding of a policy with ten rules for every write of ConfigMaps.
async fn policy(settings: &Settings, server: &Server) -> Result<Vec<Row>, Error> {
    let create = |round: &'static str| move |n: u64| config_map("default", &format!("{round}-{n}"));
    let without = measured(settings, server, 16, create("free")).await?;
    let rules: Vec<Value> = (0..10)
        .map(|n| json!({"expression": format!("!has(object.data) || object.data.all(key, size(key) < {}) && object.metadata.name != 'n{n}'", 200 + n)}))
        .collect();
    let rule = json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]});
    let spec = json!({"matchConstraints": {"resourceRules": [rule]}, "validations": rules});
    let mut connection = server.target.connect().await?;
    let kind = "ValidatingAdmissionPolicy";
    let object = |kind: &str, spec: Value| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "ten"}, "spec": spec}).to_string()
    };
    connection
        .call(Call::post(format!("{REGISTRATION}/validatingadmissionpolicies"), object(kind, spec)))
        .await?;
    let bound = json!({"policyName": "ten", "validationActions": ["Deny"]});
    let binding = object("ValidatingAdmissionPolicyBinding", bound);
    connection.call(Call::post(format!("{REGISTRATION}/validatingadmissionpolicybindings"), binding)).await?;
    let with = measured(settings, server, 16, create("judged")).await?;
    connection.call(Call::delete(format!("{REGISTRATION}/validatingadmissionpolicybindings/ten"))).await?;
    let n = with.0.latencies.len();
    Ok(vec![
        figure("create a ConfigMap, 16 clients", without.0.per_second(), "/s", without.0.latencies.len()),
        figure("create a ConfigMap under a policy of ten rules, 16 clients", with.0.per_second(), "/s", n),
        figure("a policy of ten rules: server CPU a write", with.1 - without.1, "us", n),
    ])
}

/// A validating webhook on loopback that allows at once; its process is the load's.
async fn webhook(settings: &Settings, server: &Server) -> Result<Vec<Row>, Error> {
    let create = |round: &'static str| move |n: u64| config_map("default", &format!("{round}-{n}"));
    let without = measured(settings, server, 1, create("unasked")).await?;
    let hook = Hook::start(review::allowed);
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let webhook = json!({
        "name": "allow.bench.coracle.dev", "rules": [rule], "clientConfig": hook.client_config("/allow"),
        "admissionReviewVersions": ["v1"], "sideEffects": "None",
    });
    let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "allow"}, "webhooks": [webhook]});
    let mut connection = server.target.connect().await?;
    let path = format!("{REGISTRATION}/validatingwebhookconfigurations");
    connection.call(Call::post(path.clone(), object.to_string())).await?;
    let with = measured(settings, server, 1, create("asked")).await?;
    let many = measured(settings, server, 16, create("asked-by-many")).await?;
    connection.call(Call::delete(format!("{path}/allow"))).await?;
    let asked = hook.take().len();
    if asked < with.0.latencies.len() + many.0.latencies.len() {
        return Err(format!("the webhook was asked {asked} times only").into());
    }
    let n = with.0.latencies.len();
    Ok(vec![
        figure(
            "a no-op webhook: added to a create, p50",
            with.0.percentile(50) - without.0.percentile(50),
            "ms",
            n,
        ),
        figure(
            "create a ConfigMap with a no-op webhook, 16 clients",
            many.0.per_second(),
            "/s",
            many.0.latencies.len(),
        ),
        figure("a no-op webhook: connections", count(hook.connections()), "", n),
    ])
}

/// From the change of a definition to the last byte of a document that shows it.
async fn published(server: &Server) -> Result<Vec<Row>, Error> {
    const ROUNDS: usize = 20;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/notes.bench.coracle.dev";
    let mut connection = server.target.connect().await?;
    let mut rows = Vec::new();
    for (name, document) in [("v2", "/openapi/v2"), ("v3", "/openapi/v3/apis/bench.coracle.dev/v1")] {
        let (mut first, mut others) = (0.0, Vec::new());
        for round in 0..ROUNDS {
            let mut changed = definition()["spec"]["versions"].take();
            let text = format!("{name} {round}");
            changed[0]["schema"]["openAPIV3Schema"]["description"] = text.as_str().into();
            let begun = Instant::now();
            let patch = json!({"spec": {"versions": changed}}).to_string();
            connection.call(Call::merge_patch(path, patch)).await?;
            let shown = connection.call(Call::get(document)).await?;
            let took = begun.elapsed().as_secs_f64() * 1e3;
            if !shown.windows(text.len()).any(|piece| piece == text.as_bytes()) {
                return Err(format!("{document} does not show {text:?}").into());
            }
            if round == 0 { first = took } else { others.push(took) }
        }
        others.sort_by(f64::total_cmp);
        let worst = others.last().copied().unwrap_or_default();
        rows.push(figure(format!("definition changed to OpenAPI {name} read: first"), first, "ms", 1));
        rows.push(figure(
            format!("definition changed to OpenAPI {name} read: worst"),
            worst,
            "ms",
            others.len(),
        ));
    }
    Ok(rows)
}

/// The same thousand objects as custom resources and as ConfigMaps, each on a server of its own.
async fn memory(settings: &Settings) -> Result<Vec<Row>, Error> {
    const OBJECTS: u64 = 1000;
    let mut grown = Vec::new();
    for custom in [false, true] {
        let server = Server::start(&settings.binary, &ROOTLESS).await?;
        server.namespace("default").await?;
        if custom {
            served(&server).await?;
        }
        // What only the start needed is handed back ten seconds after it.
        tokio::time::sleep(settings.time(20)).await;
        let before = server.process().rss_mib()?;
        let limit = Limit { time: Duration::from_secs(60), calls: OBJECTS };
        let make = move |n: u64| {
            let (path, object) = if custom {
                (NOTES, note(&format!("kept-{n}"), n))
            } else {
                (MAPS, twin(&format!("kept-{n}"), n))
            };
            Call::post(path.to_owned(), object.to_string())
        };
        closed_loop(&server.target, 16, limit, make).await?;
        // What the writes needed for a moment goes back.
        tokio::time::sleep(settings.time(15)).await;
        grown.push(server.process().rss_mib()? - before);
    }
    Ok(vec![
        figure("1,000 ConfigMaps: memory", grown[0], "MiB", 1),
        figure("1,000 custom resources: memory", grown[1], "MiB", 1),
    ])
}
