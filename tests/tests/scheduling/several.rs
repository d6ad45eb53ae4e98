//! Schedulers as processes of their own: by name, in a race, and one after the other.

use super::{pod, with_priorities};
use coracle_tests::Cluster;
use std::process::{Child, Command, Stdio};

/// A `coracle scheduler`, ended with the value.
struct Scheduler(Child);

impl Scheduler {
    fn start(cluster: &Cluster, name: &str, elect: bool) -> Self {
        Self::on_port(cluster, name, elect, 0)
    }

    /// With health and metrics on this port.
    fn on_port(cluster: &Cluster, name: &str, elect: bool, port: u16) -> Self {
        let file = cluster.data_dir().join(format!("{name}-{elect}.yaml"));
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
             leaderElection: {{leaderElect: {elect}, resourceName: {name}, leaseDuration: 15s, renewDeadline: 12s, \
             retryPeriod: 500ms}}\nprofiles: [{{schedulerName: {name}}}]\n"
        );
        std::fs::write(&file, text).expect("a configuration");
        let kubeconfig = cluster.data_dir().with_file_name("kubeconfig");
        let child = Command::new(coracle_tests::coracle())
            .args(["scheduler", "--kubeconfig"])
            .arg(kubeconfig)
            .arg("--config")
            .arg(file)
            .args(["--bind-address", "127.0.0.1", "--secure-port", &port.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("the binary starts"))
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_pod_chooses_its_scheduler() {
    let cluster = with_priorities();
    cluster.apply(&pod("mine", "low-priority", "1", "  schedulerName: second\n"));
    cluster.apply(&pod("theirs", "low-priority", "1", ""));
    cluster.ok("kubectl wait pod/theirs --for=condition=Ready --timeout=100s");
    cluster.says("kubectl get pod mine -o jsonpath='{.spec.nodeName}'", "");
    let _second = Scheduler::start(&cluster, "second", true);
    cluster.ok("kubectl wait pod/mine --for=condition=Ready --timeout=100s");
    cluster.until(
        "kubectl get events --field-selector reason=Scheduled,involvedObject.name=mine -o jsonpath='{.items[*].reportingComponent}'",
        "second",
    );
    cluster.ok("kubectl get lease second -n kube-system -o name");
}

/// Both see every pod and bind as fast as they can; the API lets one of them bind each.
#[test]
fn two_schedulers_in_a_race_bind_every_pod_once() {
    let cluster = with_priorities();
    let _racers = [Scheduler::start(&cluster, "racer", false), Scheduler::start(&cluster, "racer", false)];
    let pods: String =
        (0..60).map(|n| pod(&format!("p{n}"), "low-priority", "500m", "  schedulerName: racer\n")).collect();
    cluster.apply(&pods);
    cluster.ok("kubectl wait pod --all --for=condition=Ready --timeout=100s");
    cluster.says("kubectl get pods -o jsonpath='{.items[*].spec.nodeName}' | tr ' ' '\\n' | sort | uniq -c | awk '{print $1,$2}'", "60 sim-0");
    cluster.until("kubectl get events --field-selector reason=Scheduled --no-headers | wc -l", "60");
}

#[test]
fn whoever_does_not_lead_waits_and_takes_over() {
    let cluster = with_priorities();
    let first = Scheduler::start(&cluster, "second", true);
    cluster
        .until_that("kubectl get lease second -n kube-system -o jsonpath='{.spec.holderIdentity}'", |id| {
            !id.is_empty()
        });
    let holder = cluster.ok("kubectl get lease second -n kube-system -o jsonpath='{.spec.holderIdentity}'");
    let _next = Scheduler::start(&cluster, "second", true);
    cluster.apply(&pod("one", "low-priority", "1", "  schedulerName: second\n"));
    cluster.ok("kubectl wait pod/one --for=condition=Ready --timeout=100s");
    cluster
        .says("kubectl get lease second -n kube-system -o jsonpath='{.spec.holderIdentity}'", holder.trim());
    cluster.says("kubectl get lease second -n kube-system -o jsonpath='{.spec.leaseDurationSeconds}'", "15");
    drop(first);
    cluster.apply(&pod("two", "low-priority", "1", "  schedulerName: second\n"));
    cluster.ok("kubectl wait pod/two --for=condition=Ready --timeout=100s");
}

#[test]
fn whoever_is_told_to_end_leaves_the_lease_to_the_next() {
    let cluster = with_priorities();
    let first = Scheduler::start(&cluster, "second", true);
    let holder = "kubectl get lease second -n kube-system -o jsonpath='{.spec.holderIdentity}'";
    cluster.until_that(holder, |id| !id.is_empty());
    cluster.ok(&format!("kill -TERM {}", first.0.id()));
    cluster.until(holder, "");
    cluster.says("kubectl get lease second -n kube-system -o jsonpath='{.spec.leaseDurationSeconds}'", "1");
}

/// Health is everybody's; metrics are for whom the API lets read them.
#[test]
fn a_scheduler_alone_shows_its_health_and_metrics() {
    let cluster = with_priorities();
    let port = coracle_tests::cluster::free_port();
    let _second = Scheduler::on_port(&cluster, "second", true, port);
    let get = |path: &str| format!("curl -sk https://127.0.0.1:{port}{path}");
    cluster.until(&get("/healthz"), "ok");
    cluster.until(&get("/livez"), "ok");
    cluster.until_that(&get("/readyz?verbose"), |text| {
        text.contains("[+]leaderElection ok") && text.trim_end().ends_with("readyz check passed")
    });
    cluster.apply(&pod("one", "low-priority", "1", "  schedulerName: second\n"));
    cluster.ok("kubectl wait pod/one --for=condition=Ready --timeout=100s");
    let refused = cluster.run(&get("/metrics"));
    assert!(
        refused.stdout.contains("forbidden: User \\\"system:anonymous\\\" cannot get path \\\"/metrics\\\""),
        "{refused}"
    );
    cluster.ok("kubectl create serviceaccount reader");
    cluster.ok("kubectl create clusterrolebinding reader --clusterrole=system:monitoring --serviceaccount=default:reader");
    let page = format!("{} -H \"Authorization: Bearer $(kubectl create token reader)\"", get("/metrics"));
    cluster.until_that(&page, |text| {
        let counted = "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"second\"} 1";
        text.contains(counted) && text.contains("scheduler_plugin_execution_duration_seconds_bucket")
    });
    // Whoever watches over components may read what they are and how they were started.
    let port = port.to_string();
    for (path, line) in
        [("/flagz", format!("\nsecure-port={port}\n")), ("/statusz", "\nBinary version: 1.36.0\n".to_owned())]
    {
        let refused = cluster.run(&get(path));
        assert!(refused.stdout.contains(&format!("cannot get path \\\"{path}\\\"")), "{refused}");
        let page =
            cluster.ok(&format!("{} -H \"Authorization: Bearer $(kubectl create token reader)\"", get(path)));
        assert!(
            page.starts_with(&format!("\nkube-scheduler {}\n", &path[1..])) && page.contains(&line),
            "{page}"
        );
    }
    cluster.ok("kubectl create clusterrole resources --verb=get --non-resource-url=/metrics/resources");
    let refused = cluster.run(&get("/metrics/resources"));
    assert!(refused.stdout.contains("cannot get path \\\"/metrics/resources\\\""), "{refused}");
    cluster.ok(
        "kubectl create clusterrolebinding resources --clusterrole=resources --serviceaccount=default:reader",
    );
    let resources =
        format!("{} -H \"Authorization: Bearer $(kubectl create token reader)\"", get("/metrics/resources"));
    let requested = |text: &str| {
        let sample = "kube_pod_resource_request{namespace=\"default\",pod=\"one\",";
        let cores = "resource=\"cpu\",unit=\"cores\"} 1";
        text.lines().any(|line| line.starts_with(sample) && line.ends_with(cores))
    };
    cluster.until_that(&resources, requested);
    cluster.until_that("kubectl get --raw /metrics/resources", requested);
    let wrong = cluster.run(&format!("{} -H 'Authorization: Bearer nonsense'", get("/metrics")));
    assert!(wrong.stdout.contains("Unauthorized"), "{wrong}");
}
