//! `healthCheckNodePort` of Services of type LoadBalancer with `externalTrafficPolicy: Local`: where a load balancer asks
//! whether this node has endpoints of the Service.

use crate::family::Family;
use crate::health::LastSync;
use crate::model::{Usable, is_for_other_proxy, usable};
use coracle_listen::page;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Pauses between two tries to have a port; a load balancer takes a node out after a few checks, seconds each.
const FIRST_RETRY_INTERVAL: Duration = Duration::from_secs(1);
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// What is said about one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub namespace: String,
    pub service: String,
    /// Addresses of ready endpoints on this node.
    pub local_endpoints: usize,
}

/// The check that a node shall answer for a Service, with its port; `slices` are the Service's own. A Service of both
/// families says what the family with more endpoints here has.
pub fn wanted(service: &Service, slices: &[&EndpointSlice], node: &str) -> Option<(u16, Check)> {
    let spec = service.spec.as_ref().filter(|_| !is_for_other_proxy(service))?;
    let local = spec.external_traffic_policy.as_deref() == Some("Local");
    let balanced = spec.type_.as_deref() == Some("LoadBalancer");
    let port = spec.health_check_node_port.filter(|_| local && balanced)?;
    let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
    let of_family = |family: Family| {
        let of_family = slices.iter().filter(|slice| slice.address_type == family.name());
        let endpoints = of_family.flat_map(|slice| slice.endpoints.iter().flatten());
        let here = endpoints
            .filter(|e| e.node_name.as_deref() == Some(node) && matches!(usable(e), Usable::Ready))
            .filter_map(|e| e.addresses.first());
        here.collect::<BTreeSet<_>>().len()
    };
    let namespace = service.metadata.namespace.clone().unwrap_or_default();
    let name = service.metadata.name.clone().unwrap_or_default();
    let local_endpoints = Family::ALL.into_iter().map(of_family).max().unwrap_or(0);
    Some((port, Check { namespace, service: name, local_endpoints }))
}

/// The servers of the checks.
#[derive(Default)]
pub struct Checks(BTreeMap<u16, Server>);

struct Server {
    say: watch::Sender<Check>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Checks {
    /// Serves these and no others.
    pub fn serve(&mut self, mut wanted: BTreeMap<u16, Check>, last: &LastSync) {
        self.0.retain(|port, _| wanted.contains_key(port));
        for (port, server) in &self.0 {
            if let Some(check) = wanted.remove(port) {
                server.say.send_replace(check);
            }
        }
        for (port, check) in wanted {
            let (say, said) = watch::channel(check);
            let task = tokio::spawn(listen(port, said, last.clone()));
            self.0.insert(port, Server { say, task });
        }
    }
}

/// Answers until it is aborted. A port that is taken is tried again until it is free.
async fn listen(port: u16, said: watch::Receiver<Check>, last: LastSync) {
    let mut pause = FIRST_RETRY_INTERVAL;
    loop {
        match TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await {
            Ok(listener) => return serve(listener, said, last).await,
            Err(error) => tracing::warn!(port, %error, "health check port of a Service not served"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_RETRY_INTERVAL);
    }
}

async fn serve(listener: TcpListener, said: watch::Receiver<Check>, last: LastSync) {
    loop {
        let stream = page::next(|| listener.accept()).await;
        let (status, head, body) = answer(&said.borrow(), last.is_in_force());
        tokio::spawn(page::respond(stream, move |_| (status, head, body)));
    }
}

/// Status line, further headers and body, as upstream's proxy words them.
fn answer(check: &Check, in_force: bool) -> (&'static str, String, String) {
    let well = in_force && check.local_endpoints > 0;
    let status = if well { "200 OK" } else { "503 Service Unavailable" };
    let count = check.local_endpoints;
    let head = format!("X-Content-Type-Options: nosniff\r\nX-Load-Balancing-Endpoint-Weight: {count}\r\n");
    let Check { namespace, service, .. } = check;
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": \"{namespace}\",\n\t\t\"name\": \"{service}\"\n\t}},\n\t\"localEndpoints\": {count},\n\t\"serviceProxyHealthy\": {in_force}\n}}"
    );
    (status, head, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    fn one<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
        Arc::new(serde_json::from_value(value).expect("valid object"))
    }

    fn service(spec: Value) -> Arc<Service> {
        one(json!({"metadata": {"name": "web", "namespace": "d"}, "spec": spec}))
    }

    #[test]
    fn ready_endpoints_of_this_node_are_counted_once() {
        let slice: Arc<EndpointSlice> = one(json!({"metadata": {"name": "web-1", "namespace": "d",
            "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4", "endpoints": [
            {"addresses": ["10.42.0.2"], "nodeName": "n"}, {"addresses": ["10.42.0.2"], "nodeName": "n"},
            {"addresses": ["10.42.0.3"], "nodeName": "n", "conditions": {"ready": false}},
            {"addresses": ["10.42.1.2"], "nodeName": "m"}]}));
        let spec =
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30500});
        let ours = service(spec);
        let mut v6 = EndpointSlice::clone(&slice);
        v6.address_type = "IPv6".to_owned();
        v6.endpoints = one::<EndpointSlice>(json!({"metadata": {}, "addressType": "IPv6", "endpoints": [
            {"addresses": ["fd00::2"], "nodeName": "n"}]}))
        .endpoints
        .clone();
        let of = |service: &Service| wanted(service, &[&slice, &v6], "n");
        let check = Check { namespace: "d".to_owned(), service: "web".to_owned(), local_endpoints: 1 };
        assert_eq!(of(&ours), Some((30500, check)));
        for other in
            [json!({"type": "LoadBalancer", "healthCheckNodePort": 30500}), json!({"type": "NodePort"})]
        {
            assert_eq!(of(&service(other)), None);
        }
        let mut others = Service::clone(&ours);
        let label = ("service.kubernetes.io/service-proxy-name".to_owned(), "mesh".to_owned());
        others.metadata.labels = Some(BTreeMap::from([label]));
        assert_eq!(of(&others), None, "another proxy answers");
    }

    fn check(local_endpoints: usize) -> Check {
        Check { namespace: "d".to_owned(), service: "web".to_owned(), local_endpoints }
    }

    #[tokio::test]
    async fn what_is_said_follows_the_endpoints() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let ask = || async {
            let mut stream = TcpStream::connect(address).await.expect("a connection");
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n").await.expect("a question");
            let mut said = String::new();
            stream.read_to_string(&mut said).await.expect("an answer");
            said
        };
        let ((say, said), last) = (watch::channel(check(2)), LastSync::default());
        last.now();
        let server = tokio::spawn(serve(listener, said, last.clone()));
        let said = ask().await;
        assert!(said.starts_with("HTTP/1.1 200 OK") && said.contains("\"localEndpoints\": 2"), "{said}");
        say.send_replace(check(0));
        let said = ask().await;
        assert!(
            said.starts_with("HTTP/1.1 503") && said.contains("X-Load-Balancing-Endpoint-Weight: 0"),
            "{said}"
        );
        say.send_replace(check(1));
        last.failed();
        let said = ask().await;
        assert!(
            said.starts_with("HTTP/1.1 503") && said.contains("\"serviceProxyHealthy\": false"),
            "{said}"
        );
        server.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_that_is_taken_is_tried_until_it_is_free() {
        let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.expect("a port");
        let port = taken.local_addr().expect("its address").port();
        let (mut checks, last) = (Checks::default(), LastSync::default());
        checks.serve(BTreeMap::from([(port, check(1))]), &last);
        tokio::time::sleep(FIRST_RETRY_INTERVAL * 5).await;
        drop(taken);
        tokio::time::sleep(MAX_RETRY_INTERVAL).await;
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("it is served without another call");
        checks.serve(BTreeMap::new(), &last);
        assert!(checks.0.is_empty());
    }
}
