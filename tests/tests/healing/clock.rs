//! A clock that is set, by a day, forward and back, under a running server. Only the server's own clock: libfaketime
//! shows it another one.

use crate::{job, told, uids, workload};
use coracle_tests::http::Caller;
use coracle_tests::{Cluster, skipped, wait_for};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A step is noticed within 15 s, and a schedule of every minute needs up to a minute beside.
const NOTICED: Duration = Duration::from_secs(150);

/// The library, where Debian's package puts it.
fn library() -> Option<PathBuf> {
    let below = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    below.map(|dir| dir.join("faketime/libfaketime.so.1")).find(|path| path.is_file())
}

/// The server's clock: what it shows is the real time and `offset`, in libfaketime's words.
fn set(clock: &Path, offset: &str) {
    // Replaced in one step, because the server reads it at any time.
    let new = clock.with_extension("new");
    std::fs::write(&new, format!("{offset}\n")).expect("the clock's file");
    std::fs::rename(&new, clock).expect("the clock's file");
}

fn token_works(cluster: &Cluster, token: &str) -> bool {
    let caller = Caller::Token(token.to_owned());
    // Nobody gave the account any right, so the answer is 403 or, to a token that counts for nothing, 401.
    cluster.http(&caller, "GET", "/api/v1/namespaces/default/pods", "").code == 403
}

fn token(cluster: &Cluster) -> String {
    cluster.ok("kubectl create token default").trim().to_owned()
}

/// How often the server has noticed that its clock was set.
fn steps(cluster: &Cluster) -> usize {
    cluster.log().matches("the clock was set").count()
}

fn noticed(cluster: &Cluster, count: usize) {
    wait_for("a step of the clock being noticed", NOTICED, || match steps(cluster) {
        n if n >= count => Ok(()),
        n => Err(format!("{n} of {count}")),
    });
}

/// Names of the Jobs of the CronJob `tick`.
fn ticks(cluster: &Cluster) -> Vec<String> {
    let all = cluster.ok("kubectl get jobs -o name");
    all.lines().filter_map(|name| name.strip_prefix("job.batch/tick-")).map(str::to_owned).collect()
}

/// Names of the schedule's Jobs, and when they were seen.
struct Ticks {
    names: Vec<String>,
    at: Instant,
}

/// As many more Jobs of the CronJob as a day has minutes would be a burst; the last one that was missed, the next one, and
/// one for each minute that has passed meanwhile are none.
fn ticks_on(cluster: &Cluster, before: &Ticks) -> Ticks {
    let names = wait_for("a further Job of the schedule", NOTICED, || {
        let now = ticks(cluster);
        if now.iter().any(|name| !before.names.contains(name)) { Ok(now) } else { Err(format!("{now:?}")) }
    });
    let now = Ticks { names, at: Instant::now() };
    let fresh = now.names.iter().filter(|name| !before.names.contains(name)).count();
    let minutes = (now.at - before.at).as_secs() / 60;
    assert!(
        u64::try_from(fresh).is_ok_and(|fresh| fresh <= 2 + minutes),
        "a burst: {:?} after {:?}",
        now.names,
        before.names
    );
    now
}

#[test]
fn a_day_forward_and_back() {
    let Some(library) = library() else {
        return skipped("needs libfaketime: scripts/prepare installs it");
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let clock = dir.path().join("clock");
    let cluster = cluster(&library, &clock);
    populate(&cluster);
    let (pods, today) = (uids(&cluster, "web"), token(&cluster));
    assert!(token_works(&cluster, &today));
    let before = ticks_on(&cluster, &Ticks { names: Vec::new(), at: Instant::now() });
    set(&clock, "+1d");
    let tomorrow = a_day_later(&cluster, &before, &today, &pods);
    set(&clock, "+0d");
    back_again(&cluster, &tomorrow, &pods);
    let doubled = cluster.ok("kubectl get jobs -o jsonpath='{range .items[*]}{.metadata.annotations.batch\\.kubernetes\\.io/cronjob-scheduled-timestamp}{\"\\n\"}{end}' | grep . | sort | uniq -d");
    assert_eq!(doubled, "", "no time of the schedule was served twice");
}

/// What the box has been through: two years in a drawer, a start in 1970 without a battery, one by a clock far ahead (beyond
/// the authorities' own end), and the right time again. Whoever is on the box is let in each time, by a certificate that
/// is good for days, and nothing that was there is gone.
#[test]
fn years_in_a_drawer_and_clocks_that_are_wrong_at_the_start() {
    let Some(library) = library() else {
        return skipped("needs libfaketime: scripts/prepare installs it");
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let clock = dir.path().join("clock");
    let mut cluster = cluster(&library, &clock);
    cluster.apply(&workload("Deployment", "web", "replicas: 2"));
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    let (pods, first) = (uids(&cluster, "web"), token(&cluster));
    for time in ["+730d", "@1970-01-02 00:00:00", "@2060-01-02 00:00:00", "+0d"] {
        assert_eq!(cluster.terminate(), 0, "before {time}");
        set(&clock, time);
        cluster.restart();
        well(&cluster, &pods);
        let fresh = token(&cluster);
        assert!(token_works(&cluster, &fresh), "{time}");
        cluster.ok("kubectl create deployment fresh --image=nginx && kubectl rollout status deployment/fresh --timeout=100s");
        cluster.ok("kubectl delete deployment fresh --cascade=foreground --timeout=100s");
        // Nodes that were away for years are not lost: nobody saw them silent.
        cluster.says("kubectl get nodes -o jsonpath='{.items[*].spec.taints}'", "");
    }
    assert!(token_works(&cluster, &first), "a token of today is good again when it is today again");
    cluster.ok(&format!("coracle cert check --data-dir {}", cluster.data_dir().display()));
}

/// Two simulated nodes, Ready, under a server that reads this clock.
fn cluster(library: &Path, clock: &Path) -> Cluster {
    set(clock, "+0d");
    let cluster = Cluster::start_in(
        &["--simulate-nodes", "2"],
        &[
            ("LD_PRELOAD", library.to_str().expect("a path")),
            ("FAKETIME_TIMESTAMP_FILE", clock.to_str().expect("a path")),
            ("FAKETIME_CACHE_DURATION", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
        ],
    );
    cluster.ok("kubectl wait node --all --for=condition=Ready --timeout=100s");
    cluster
}

/// Something of everything that looks at a clock.
fn populate(cluster: &Cluster) {
    cluster.apply(&workload("Deployment", "web", "replicas: 3"));
    cluster.ok("kubectl rollout status deployment/web --timeout=100s");
    cluster.apply(&job("kept", "100ms", "ttlSecondsAfterFinished: 7200"));
    cluster.apply(&job("slow", "2880m", "activeDeadlineSeconds: 7200"));
    cluster.ok("kubectl wait job/kept --for=condition=complete --timeout=100s");
    cluster.ok("kubectl create cronjob tick --image=busybox --schedule='* * * * *'");
    cluster.ok("kubectl patch cronjob tick --subresource=status --type=merge -p \"{\\\"status\\\":{\\\"lastScheduleTime\\\":\\\"$(date -u -d '-2 minutes' +%FT%TZ)\\\"}}\"");
}

fn a_day_later(cluster: &Cluster, before: &Ticks, today: &str, pods: &BTreeSet<String>) -> Ticks {
    noticed(cluster, 1);
    cluster.within(NOTICED, "kubectl get job kept -o name --ignore-not-found", str::is_empty);
    cluster.within(
        NOTICED,
        "kubectl get job slow -o jsonpath='{.status.conditions[?(@.type==\"Failed\")].reason}'",
        |r| r == "DeadlineExceeded",
    );
    let ticks = ticks_on(cluster, before);
    told(
        cluster,
        "CronJob",
        "tick",
        "Warning TooManyMissedTimes too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew",
    );
    assert!(!token_works(cluster, today), "a token of an hour is over after a day");
    let tomorrow = token(cluster);
    assert!(token_works(cluster, &tomorrow));
    well(cluster, pods);
    cluster.ok(
        "kubectl scale deployment web --replicas=5 && kubectl rollout status deployment/web --timeout=100s",
    );
    ticks
}

fn back_again(cluster: &Cluster, tomorrow: &Ticks, pods: &BTreeSet<String>) {
    noticed(cluster, 2);
    ticks_on(cluster, tomorrow);
    assert!(token_works(cluster, &token(cluster)), "a token that is made now is good now");
    well(cluster, pods);
    cluster.ok(
        "kubectl set image deployment/web c=app:2 && kubectl rollout status deployment/web --timeout=100s",
    );
    cluster.until(
        "kubectl get pods -l app=web -o jsonpath='{.items[*].spec.containers[0].image}'",
        "app:2 app:2 app:2 app:2 app:2",
    );
    cluster.ok("kubectl delete pods -l app=web --wait=false");
    cluster.until("kubectl get deployment web -o jsonpath='{.status.readyReplicas}'", "5");
    cluster.apply(&job("after", "100ms", "ttlSecondsAfterFinished: 1"));
    cluster.within(NOTICED, "kubectl get job after -o name --ignore-not-found", str::is_empty);
}

/// Nobody took the jump for silence: the nodes are Ready and the pods are the ones they were.
fn well(cluster: &Cluster, pods: &BTreeSet<String>) {
    cluster.says(
        "kubectl get nodes -o jsonpath='{.items[*].status.conditions[?(@.type==\"Ready\")].status}{.items[*].spec.taints}'",
        "True True",
    );
    let now = uids(cluster, "web");
    assert!(now.is_superset(pods), "{pods:?} are not all in {now:?}");
    assert!(crate::events(cluster, "Node", "sim-0").iter().all(|text| !text.contains("NotReady")));
}
