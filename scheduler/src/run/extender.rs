//! Extenders over HTTP, in upstream's `k8s.io/kube-scheduler/extender/v1` form.

use crate::cache::{NodeInfo, PodInfo, Snapshot};
use crate::config::{Extender, ExtenderTls};
use crate::framework::Diagnosis;
use crate::framework::{Candidate, MAX_NODE_SCORE, NodeScore};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_api::duration;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Extenders score from 0 to 10.
const MAX_EXTENDER_PRIORITY: i64 = 10;

/// A node that an extender does not want.
pub struct Refused<'a> {
    /// Absent where it speaks of one that there is not.
    pub node: Option<&'a NodeInfo>,
    pub reason: &'a str,
    /// Whether taking pods away could change its mind.
    pub resolvable: bool,
}

struct Remote {
    config: Extender,
    client: kube::Client,
}

/// All extenders, in the order of the configuration.
#[derive(Default)]
pub struct Extenders {
    remotes: Vec<Remote>,
}

/// A field under its Go name; extenders written in other languages may use the JSON custom.
fn field<'v>(value: &'v Value, name: &str) -> &'v Value {
    let mut lower = name.to_owned();
    lower[..1].make_ascii_lowercase();
    [name, lower.as_str(), &name.to_ascii_lowercase()]
        .into_iter()
        .map(|n| &value[n])
        .find(|v| !v.is_null())
        .unwrap_or(&Value::Null)
}

fn pem(data: Option<&String>, file: Option<&PathBuf>) -> Result<Option<Vec<u8>>, String> {
    match (data, file) {
        (Some(data), _) => STANDARD.decode(data).map(Some).map_err(|e| format!("not base64: {e}")),
        (None, Some(path)) => std::fs::read(path).map(Some).map_err(|e| format!("{}: {e}", path.display())),
        (None, None) => Ok(None),
    }
}

fn client(config: &Extender) -> Result<kube::Client, String> {
    let url = config.url_prefix.parse().map_err(|e| format!("{}: {e}", config.url_prefix))?;
    let mut settings = kube::Config::new(url);
    let ExtenderTls { insecure, server_name, .. } = config.tls.clone();
    settings.accept_invalid_certs = insecure;
    settings.tls_server_name = server_name;
    settings.connect_timeout = Some(config.timeout);
    settings.read_timeout = Some(config.timeout);
    if let Some(ca) = pem(config.tls.ca_data.as_ref(), config.tls.ca_file.as_ref())? {
        settings.root_cert = Some(certificates(&ca)?);
    }
    let text = |bytes: Vec<u8>| STANDARD.encode(bytes);
    settings.auth_info.client_certificate_data =
        pem(config.tls.cert_data.as_ref(), config.tls.cert_file.as_ref())?.map(text);
    let key = pem(config.tls.key_data.as_ref(), config.tls.key_file.as_ref())?.map(text);
    settings.auth_info.client_key_data = key.map(Into::into);
    kube::Client::try_from(settings).map_err(|e| format!("{}: {e}", config.url_prefix))
}

/// The DER of every certificate in a PEM file.
fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let text = String::from_utf8_lossy(pem);
    let blocks = text.split("-----BEGIN CERTIFICATE-----").skip(1);
    let decode = |block: &str| {
        let body = block.split("-----END").next().unwrap_or_default();
        let body: String = body.chars().filter(|c| !c.is_whitespace()).collect();
        STANDARD.decode(body).map_err(|e| format!("a certificate is not PEM: {e}"))
    };
    blocks.map(decode).collect()
}

impl Remote {
    /// Whether it is asked about the pod at all.
    fn cares(&self, pod: &PodInfo) -> bool {
        let managed = &self.config.managed_resources;
        managed.is_empty() || managed.iter().any(|r| pod.requests.scalar.contains_key(&r.name))
    }

    async fn ask(&self, verb: &str, body: &Value) -> Result<Value, String> {
        // The client puts the prefix before it.
        let request = http::Request::post(format!("/{verb}")).header("content-type", "application/json");
        let request = request.body(body.to_string().into_bytes()).map_err(|e| e.to_string())?;
        let answer = tokio::time::timeout(self.config.timeout, self.client.request_text(request)).await;
        let failed = format!("failed {verb} with extender at URL {}/{verb}", self.config.url_prefix);
        let text = answer
            .map_err(|_| format!("{failed}: no answer within {}", duration::written(self.config.timeout)))?
            .map_err(|error| match error {
                kube::Error::Api(status) => format!("{failed}, code {}", status.code),
                error => format!("{failed}: {error}"),
            })?;
        serde_json::from_str(&text).map_err(|e| format!("{failed}: the answer is not JSON: {e}"))
    }

    fn arguments(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Value {
        let names: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
        if self.config.node_cache_capable {
            return json!({ "Pod": pod.waiting(), "Nodes": null, "NodeNames": names });
        }
        let items: Vec<_> = nodes.iter().filter_map(|n| n.whole.as_deref()).collect();
        json!({ "Pod": pod.waiting(), "Nodes": { "metadata": {}, "items": items }, "NodeNames": null })
    }

    /// The slots that the extender leaves.
    async fn filter(
        &self,
        verb: &str,
        pod: &PodInfo,
        snapshot: &Snapshot,
        slots: &[usize],
        refused: &mut (dyn FnMut(Refused<'_>) + Send),
    ) -> Result<Vec<usize>, String> {
        let nodes: Vec<&NodeInfo> = slots.iter().map(|s| snapshot.node(*s)).collect();
        let answer = self.ask(verb, &self.arguments(pod, &nodes)).await?;
        if let Some(error) = field(&answer, "Error").as_str().filter(|e| !e.is_empty()) {
            return Err(error.to_owned());
        }
        let failed = field(&answer, "FailedNodes").as_object();
        let hopeless = field(&answer, "FailedAndUnresolvableNodes").as_object();
        for (node, reason) in hopeless.into_iter().chain(failed).flatten() {
            let reason = reason.as_str().unwrap_or_default();
            let resolvable = hopeless.is_none_or(|h| !h.contains_key(node));
            refused(Refused { node: snapshot.node_named(node), reason, resolvable });
        }
        let names = field(&answer, "NodeNames").as_array();
        let items = field(field(&answer, "Nodes"), "items").as_array();
        let left: HashSet<&str> = match (names, items) {
            (Some(names), _) => names.iter().filter_map(Value::as_str).collect(),
            (None, Some(items)) => items.iter().filter_map(|n| n["metadata"]["name"].as_str()).collect(),
            (None, None) => return Err("the answer names no nodes".to_owned()),
        };
        Ok(slots.iter().copied().filter(|s| left.contains(snapshot.node(*s).name.as_str())).collect())
    }
}

/// Finds a pod that is on a node as the API shows it: the scheduler keeps little of those.
pub type Lookup = dyn Fn(&PodInfo) -> Option<Arc<Pod>> + Send + Sync;

impl Extenders {
    /// Refuses what cannot be reached in principle: a URL or a certificate that cannot be read. The error is its path in
    /// the configuration, and why.
    pub fn new(configs: &[Extender]) -> Result<Self, (String, String)> {
        let remote = |(i, config): (usize, &Extender)| match client(config) {
            Ok(client) => Ok(Remote { client, config: config.clone() }),
            Err(why) => Err((format!("extenders[{i}]"), why)),
        };
        Ok(Self { remotes: configs.iter().enumerate().map(remote).collect::<Result<_, _>>()? })
    }

    pub fn is_empty(&self) -> bool {
        self.remotes.is_empty()
    }

    /// Whether any of them has a say about the pod.
    pub fn care(&self, pod: &PodInfo) -> bool {
        self.remotes.iter().any(|r| r.cares(pod))
    }

    /// Whether any of them is sent nodes, not only their names.
    pub fn want_nodes(&self) -> bool {
        self.remotes.iter().any(|r| !r.config.node_cache_capable)
    }

    pub fn preempts(&self) -> bool {
        self.remotes.iter().any(|r| r.config.preempt_verb.is_some())
    }

    /// The slots that all extenders leave; `diagnosis` gets their reasons.
    pub async fn filter(
        &self,
        pod: &PodInfo,
        snapshot: &Snapshot,
        slots: Vec<usize>,
        diagnosis: &mut Diagnosis,
    ) -> Result<Vec<usize>, String> {
        let mut take_down = |refused: Refused<'_>| {
            diagnosis.refuse_by_extender(refused.reason);
            diagnosis.resolvable.extend(refused.node.filter(|_| refused.resolvable).map(|node| node.slot));
        };
        self.filter_telling(pod, snapshot, slots, &mut take_down).await
    }

    /// As [`filter`](Self::filter), telling of every node that is refused.
    pub async fn filter_telling(
        &self,
        pod: &PodInfo,
        snapshot: &Snapshot,
        mut slots: Vec<usize>,
        refused: &mut (dyn FnMut(Refused<'_>) + Send),
    ) -> Result<Vec<usize>, String> {
        for remote in self.remotes.iter().filter(|r| r.cares(pod)) {
            let Some(verb) = &remote.config.filter_verb else { continue };
            if slots.is_empty() {
                break;
            }
            match remote.filter(verb, pod, snapshot, &slots, refused).await {
                Ok(left) => slots = left,
                Err(error) if remote.config.ignorable => {
                    tracing::warn!(pod = %pod.key, %error, "extender skipped");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(slots)
    }

    /// Adds the extenders' scores. One that does not answer has no say, as upstream.
    pub async fn prioritize(&self, pod: &PodInfo, snapshot: &Snapshot, totals: &mut [NodeScore]) {
        let nodes: Vec<&NodeInfo> = totals.iter().map(|t| snapshot.node(t.node)).collect();
        for remote in self.remotes.iter().filter(|r| r.cares(pod)) {
            let Some(verb) = &remote.config.prioritize_verb else { continue };
            let answer = match remote.ask(verb, &remote.arguments(pod, &nodes)).await {
                Ok(answer) => answer,
                Err(error) => {
                    tracing::warn!(pod = %pod.key, %error, "extender has no say in the score");
                    continue;
                }
            };
            for score in answer.as_array().into_iter().flatten() {
                let host = field(score, "Host").as_str().unwrap_or_default();
                let points = field(score, "Score").as_i64().unwrap_or(0);
                let scaled = points * remote.config.weight * (MAX_NODE_SCORE / MAX_EXTENDER_PRIORITY);
                let total = totals.iter_mut().find(|t| snapshot.node(t.node).name == host);
                if let Some(total) = total {
                    total.score += scaled;
                }
            }
        }
    }

    /// The candidates that extenders accept, with the victims that they leave. `whole` finds a victim as the API shows it,
    /// or nothing where it has gone meanwhile.
    pub async fn preempt(
        &self,
        pod: &PodInfo,
        mut candidates: Vec<Candidate>,
        whole: &Lookup,
    ) -> Result<Vec<Candidate>, String> {
        for remote in self.remotes.iter().filter(|r| r.cares(pod)) {
            let Some(verb) = &remote.config.preempt_verb else { continue };
            if candidates.is_empty() {
                break;
            }
            let meta: serde_json::Map<String, Value> = candidates
                .iter()
                .map(|c| {
                    let pods: Vec<Value> = c.victims.iter().map(|v| json!({ "UID": v.uid })).collect();
                    (c.node.clone(), json!({ "Pods": pods, "NumPDBViolations": c.violations }))
                })
                .collect();
            let full = |c: &Candidate| {
                let pods: Vec<_> =
                    c.victims.iter().filter_map(|v| v.waiting().cloned().or_else(|| whole(v))).collect();
                (c.node.clone(), json!({ "Pods": pods, "NumPDBViolations": c.violations }))
            };
            let full: serde_json::Map<String, Value> = candidates.iter().map(full).collect();
            let body = if remote.config.node_cache_capable {
                json!({ "Pod": pod.waiting(), "NodeNameToMetaVictims": meta })
            } else {
                json!({ "Pod": pod.waiting(), "NodeNameToVictims": full })
            };
            match remote.ask(verb, &body).await {
                Ok(answer) => {
                    let ignorable = remote.config.ignorable;
                    candidates = accepted(field(&answer, "NodeNameToMetaVictims"), candidates, ignorable)?;
                }
                Err(error) if remote.config.ignorable => {
                    tracing::warn!(pod = %pod.key, %error, "extender skipped");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(candidates)
    }

    /// `None` when no extender binds this pod.
    pub async fn bind(&self, pod: &Arc<PodInfo>, node: &str) -> Option<Result<(), String>> {
        for remote in self.remotes.iter().filter(|r| r.cares(pod)) {
            let Some(verb) = &remote.config.bind_verb else { continue };
            let body = json!({
                "PodName": pod.key.name, "PodNamespace": pod.key.namespace, "PodUID": pod.uid, "Node": node,
            });
            let answer = remote.ask(verb, &body).await.and_then(|answer| {
                match field(&answer, "Error").as_str().unwrap_or_default() {
                    "" => Ok(()),
                    error => Err(error.to_owned()),
                }
            });
            match answer {
                Err(error) if remote.config.ignorable => {
                    tracing::warn!(pod = %pod.key, %error, "extender skipped");
                }
                answer => return Some(answer),
            }
        }
        None
    }
}

/// The candidates that an answer names, with the victims that it leaves them. A node without victims is a mistake of
/// the extender's, or not spoken of when that may be ignored.
fn accepted(answer: &Value, candidates: Vec<Candidate>, ignorable: bool) -> Result<Vec<Candidate>, String> {
    let mut left = Vec::new();
    for mut candidate in candidates {
        let victims = &answer[candidate.node.as_str()];
        if victims.is_null() {
            continue;
        }
        let pods = field(victims, "Pods").as_array().cloned().unwrap_or_default();
        let uids: Vec<&str> = pods.iter().filter_map(|p| field(p, "UID").as_str()).collect();
        candidate.victims.retain(|v| uids.contains(&v.uid.as_str()));
        if candidate.victims.is_empty() {
            if ignorable {
                continue;
            }
            return Err(format!("expected at least one victim pod on node {:?}", candidate.node));
        }
        let violations = field(victims, "NumPDBViolations").as_u64().unwrap_or(0);
        candidate.violations = usize::try_from(violations).unwrap_or(candidate.violations);
        left.push(candidate);
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::testing::{pod, snapshot};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Answers every request with `answer`, and tells what was asked.
    async fn serve(answer: Value) -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let (mut read, mut buffer) = (Vec::new(), [0; 65536]);
                while let Ok(n) = socket.read(&mut buffer).await {
                    read.extend_from_slice(&buffer[..n]);
                    let text = String::from_utf8_lossy(&read).into_owned();
                    if let Some((_, body)) = text.split_once("\r\n\r\n")
                        && serde_json::from_str::<Value>(body).is_ok()
                    {
                        sender.send(text).expect("the test listens");
                        break;
                    }
                }
                let body = answer.to_string();
                let head =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                socket.write_all((head + &body).as_bytes()).await.expect("the client listens");
            }
        });
        (format!("http://{address}/scheduler"), receiver)
    }

    fn extender(url: &str, extra: Value) -> Extenders {
        let mut value = json!({"urlPrefix": url, "weight": 2, "nodeCacheCapable": true, "httpTimeout": "2s"});
        json_patch::merge(&mut value, &extra);
        let text = json!({"apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration", "extenders": [value]});
        let parsed = crate::Config::parse(&text.to_string(), &crate::plugins::Registry::in_tree());
        Extenders::new(&parsed.expect("a configuration").config.extenders).expect("extenders")
    }

    #[tokio::test]
    async fn an_extender_without_a_cache_is_sent_whole_nodes() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (url, mut asked) = serve(json!({"NodeNames": []})).await;
        let extenders = extender(&url, json!({"filterVerb": "filter", "nodeCacheCapable": false}));
        assert!(extenders.want_nodes() && !extender(&url, json!({})).want_nodes());
        let mut snapshot = Snapshot::default();
        snapshot.keep_nodes_whole();
        let node = json!({"metadata": {"name": "a", "uid": "u"}, "status": {"nodeInfo": {"architecture": "arm64",
            "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "",
            "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": ""}}});
        snapshot.set_node(Arc::new(serde_json::from_value(node).expect("a node")));
        let pod = pod(json!({"metadata": {"name": "p"}, "spec": {"containers": []}}));
        let left = extenders.filter(&pod, &snapshot, vec![0], &mut Diagnosis::new(1)).await;
        assert_eq!(left, Ok(vec![]));
        let request = asked.recv().await.expect("a request");
        assert!(request.contains("\"uid\":\"u\"") && request.contains("arm64"), "{request}");
    }

    fn two_nodes() -> Snapshot {
        snapshot(&[json!({"metadata": {"name": "a"}}), json!({"metadata": {"name": "b"}})], &[])
    }

    #[tokio::test]
    async fn an_extender_filters_and_says_why() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (url, mut asked) = serve(json!({"NodeNames": ["b"], "FailedNodes": {"a": "too loud"}})).await;
        let (extenders, snapshot) = (extender(&url, json!({"filterVerb": "filter"})), two_nodes());
        let pod = pod(json!({"metadata": {"name": "p"}, "spec": {"containers": []}}));
        let mut diagnosis = Diagnosis::new(2);
        let left = extenders.filter(&pod, &snapshot, vec![0, 1], &mut diagnosis).await;
        assert_eq!(left, Ok(vec![1]));
        assert_eq!(diagnosis.message(), "0/2 nodes are available: 1 too loud.");
        let request = asked.recv().await.expect("a request");
        assert!(request.starts_with("POST /scheduler/filter"), "{request}");
        assert!(request.contains("\"NodeNames\":[\"a\",\"b\"]"), "{request}");
    }

    #[tokio::test]
    async fn scores_are_scaled_and_silence_is_ignored_when_it_may_be() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (url, _asked) = serve(json!([{"Host": "a", "Score": 5}])).await;
        let (extenders, snapshot) = (extender(&url, json!({"prioritizeVerb": "rate"})), two_nodes());
        let pod = pod(json!({"metadata": {"name": "p"}, "spec": {"containers": []}}));
        let mut totals = [NodeScore { node: 0, score: 1 }, NodeScore { node: 1, score: 1 }];
        extenders.prioritize(&pod, &snapshot, &mut totals).await;
        assert_eq!(totals.map(|t| t.score), [101, 1]);
        let dead = |ignorable: bool| {
            extender("http://127.0.0.1:9/x", json!({"filterVerb": "filter", "ignorable": ignorable}))
        };
        let mut diagnosis = Diagnosis::new(2);
        assert_eq!(dead(true).filter(&pod, &snapshot, vec![0], &mut diagnosis).await, Ok(vec![0]));
        assert!(dead(false).filter(&pod, &snapshot, vec![0], &mut diagnosis).await.is_err());
    }

    #[tokio::test]
    async fn binding_is_left_to_others_only_by_an_extender_that_may_be_ignored() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let pod = Arc::new(pod(json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": []}})));
        let (url, mut asked) = serve(json!({"Error": "full"})).await;
        for (ignorable, answer) in [(false, Some(Err("full".to_owned()))), (true, None)] {
            let extenders = extender(&url, json!({"bindVerb": "bind", "ignorable": ignorable}));
            assert_eq!(extenders.bind(&pod, "a").await, answer);
            assert!(asked.recv().await.is_some_and(|request| request.contains("\"PodUID\":\"u\"")));
        }
        let (url, _asked) = serve(json!({})).await;
        assert_eq!(extender(&url, json!({"bindVerb": "bind"})).bind(&pod, "a").await, Some(Ok(())));
        assert_eq!(extender(&url, json!({"filterVerb": "filter"})).bind(&pod, "a").await, None);
    }

    #[tokio::test]
    async fn candidates_are_those_that_the_extender_leaves_victims() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let victim = |uid: &str| Arc::new(pod(json!({"metadata": {"uid": uid}, "spec": {"containers": []}})));
        let candidate = |node: &str| {
            let victims = vec![victim(&format!("{node}1")), victim(&format!("{node}2"))];
            Candidate { node: node.to_owned(), victims, violations: 0 }
        };
        let pod = pod(json!({"metadata": {"name": "p"}, "spec": {"containers": []}}));
        let answer = json!({"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "a2"}], "NumPDBViolations": 1}, "b": {"Pods": []}}});
        let (url, _asked) = serve(answer).await;
        for ignorable in [false, true] {
            let extenders = extender(&url, json!({"preemptVerb": "preempt", "ignorable": ignorable}));
            let candidates = vec![candidate("a"), candidate("b"), candidate("c")];
            let left = extenders.preempt(&pod, candidates, &|_| None).await;
            let Ok(left) = left else {
                assert!(!ignorable);
                continue;
            };
            assert!(ignorable, "a node without victims is a mistake");
            let told: Vec<_> =
                left.iter().map(|c| (c.node.as_str(), c.victims.len(), c.violations)).collect();
            assert_eq!(told, [("a", 1, 1)]);
            assert_eq!(left[0].victims[0].uid, "a2");
        }
    }
}
