//! Leader election on a Lease, as operators in Rust do it: kube-rs's `Api<Lease>`, the lease's fields, and the
//! server's refusal of whoever read an older version.

use coracle_tests::Cluster;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use std::sync::Mutex;
use std::time::Duration;

const CANDIDATES: usize = 4;
const TERMS: usize = 3;
/// Seconds that a leader's lease lasts who will give it back: longer than a busy machine keeps anybody waiting.
const DURATION: i32 = 60;
/// Of one who will not: what a crash costs.
const CRASHING: i32 = 4;

async fn client(cluster: &Cluster) -> Client {
    // The second installation is refused, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let file = Kubeconfig::read_from(cluster.kubeconfig()).expect("the kubeconfig");
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

/// Takes the lease for so many seconds if it is free or has run out. `None`: somebody else has it, or was quicker.
async fn acquire(leases: &Api<Lease>, name: &str, seconds: i32) -> Option<Lease> {
    let now = k8s_openapi::jiff::Timestamp::now();
    let found = leases.get_opt("leader").await.expect("get");
    let spec = found.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
    let renewed = spec.renew_time.as_ref().map(|time| time.0);
    let lasts = i64::from(spec.lease_duration_seconds.unwrap_or(0));
    let expired = renewed.is_none_or(|at| now.duration_since(at).as_secs() >= lasts);
    let free = spec.holder_identity.as_deref().is_none_or(str::is_empty);
    if !free && !expired {
        return None;
    }
    let taken = LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: Some(seconds),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(spec.lease_transitions.unwrap_or(0) + 1),
        ..LeaseSpec::default()
    };
    let result = match found {
        Some(lease) => {
            let next = Lease { spec: Some(taken), ..lease };
            leases.replace("leader", &PostParams::default(), &next).await
        }
        None => {
            let metadata = ObjectMeta { name: Some("leader".to_owned()), ..ObjectMeta::default() };
            leases.create(&PostParams::default(), &Lease { metadata, spec: Some(taken) }).await
        }
    };
    match result {
        Ok(lease) => Some(lease),
        Err(kube::Error::Api(status)) if status.code == 409 => None,
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Leads once: a time in which nobody else may think that he leads. Odd terms end with a release, even ones with a
/// crash, after which the lease has to run out.
async fn lead(leases: &Api<Lease>, lease: Lease, name: &str, leading: &Mutex<Vec<String>>, release: bool) {
    leading.lock().expect("no panic").push(format!("+{name}"));
    tokio::time::sleep(Duration::from_millis(150)).await;
    leading.lock().expect("no panic").push(format!("-{name}"));
    if release {
        let spec = LeaseSpec { holder_identity: None, ..lease.spec.clone().unwrap_or_default() };
        let freed = Lease { spec: Some(spec), ..lease };
        leases.replace("leader", &PostParams::default(), &freed).await.expect("the leader alone writes");
    }
}

#[test]
fn one_leads_at_a_time_and_everybody_in_turn() {
    let cluster = Cluster::simulated();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let leases: Api<Lease> = Api::default_namespaced(client(&cluster).await);
        let leading = Mutex::new(Vec::new());
        let candidates = (0..CANDIDATES).map(|n| {
            let (leases, leading) = (&leases, &leading);
            async move {
                let name = format!("candidate-{n}");
                let mut terms = 0;
                while terms < TERMS {
                    let release = terms != 1;
                    let seconds = if release { DURATION } else { CRASHING };
                    if let Some(lease) = acquire(leases, &name, seconds).await {
                        lead(leases, lease, &name, leading, release).await;
                        terms += 1;
                    }
                    tokio::time::sleep(Duration::from_millis(30)).await;
                }
            }
        });
        let all = futures::future::join_all(candidates);
        tokio::time::timeout(Duration::from_secs(120), all).await.expect("everybody leads");
        let history = leading.into_inner().expect("no panic");
        assert_eq!(history.len(), 2 * CANDIDATES * TERMS);
        for term in history.chunks(2) {
            assert_eq!(term[0].trim_start_matches('+'), term[1].trim_start_matches('-'), "{history:?}");
        }
        let lease = leases.get("leader").await.expect("the lease");
        let transitions = lease.spec.and_then(|spec| spec.lease_transitions);
        assert_eq!(transitions, i32::try_from(CANDIDATES * TERMS).ok());
    });
    cluster.assert_alive();
}
