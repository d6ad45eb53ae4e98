//! What a user types, against the real binary with simulated nodes. Needs kubectl and curl, and no root.

mod access;
mod apply;
mod backup;
mod bad_etcd;
mod bad_input;
mod bad_start;
mod change;
mod ci;
mod create;
mod damaged;
mod delete;
mod discover;
mod dns;
mod durable;
mod export;
mod families;
mod first_hour;
mod moments;
mod monitoring;
mod moving;
mod nodes;
mod proxy;
mod recovery;
mod releases;
mod rollout;
mod scheduled;
mod shared;
mod show;
mod watch;
mod workloads;

/// Three replicas of a web server and a Service before them.
const WEB: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: nginx:1.27
        ports: [{containerPort: 8080}]
        resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 128Mi}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
"#;

/// A cluster in which `WEB` has rolled out.
fn with_web() -> coracle_tests::Cluster {
    let cluster = coracle_tests::Cluster::simulated();
    assert_eq!(cluster.apply(WEB), "deployment.apps/web created\nservice/web created\n");
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    cluster
}
