//! The queues by hand, and the filter with the default levels in virtual time.

use super::config::Queuing;
use super::queueset::{Arrival, Mode, QueueSet, Refusal};
use super::*;
use coracle_api::UserInfo;
use http::Method;
use std::collections::BTreeMap;

const MILLI: Duration = Duration::from_millis(1);

fn queued(queues: u32, hand_size: u32, queue_length_limit: u32) -> Mode {
    Mode::Queue(Queuing { queues, hand_size, queue_length_limit })
}

/// Requests that run, as (flow, end), and a log of who began.
struct Bench {
    set: QueueSet<(u64, Duration)>,
    now: Duration,
    running: Vec<(Duration, u64, usize, Duration)>,
    served: BTreeMap<u64, Duration>,
}

impl Bench {
    fn new(mode: Mode, limit: u32) -> Self {
        Self {
            set: QueueSet::new(mode, limit),
            now: Duration::ZERO,
            running: Vec::new(),
            served: BTreeMap::new(),
        }
    }

    fn arrive(&mut self, flow: u64, takes: Duration) {
        let arrival = self.set.arrive(self.now, flow, 1, || (flow, takes));
        match arrival {
            Arrival::Run(place) => self.running.push((self.now + takes, flow, place.unwrap(), takes)),
            Arrival::Wait { .. } => {}
            Arrival::Rejected(why) => panic!("{why:?}"),
        }
    }

    /// Until the given time: the earliest end first; whoever ends asks again.
    fn run(&mut self, until: Duration) {
        loop {
            self.running.sort();
            let Some((end, flow, place, took)) = self.running.first().copied().filter(|r| r.0 <= until)
            else {
                return;
            };
            self.running.remove(0);
            self.now = end;
            *self.served.entry(flow).or_default() += took;
            self.set.finish(end, Some(place), 1, took);
            let (running, now) = (&mut self.running, self.now);
            self.set.dispatch(now, |(flow, takes), queue| running.push((now + takes, flow, queue, takes)));
            self.arrive(flow, took);
        }
    }
}

/// Each flow has the queue of its own number: a hand of one card.
#[test]
fn seats_are_shared_by_flows_not_by_requests() {
    let mut bench = Bench::new(queued(8, 1, 1000), 4);
    for _ in 0..100 {
        bench.arrive(1, 10 * MILLI);
    }
    bench.arrive(2, 10 * MILLI);
    bench.arrive(2, 10 * MILLI);
    bench.arrive(3, 40 * MILLI);
    bench.arrive(3, 40 * MILLI);
    bench.run(Duration::from_secs(20));
    let share = |flow| bench.served[&flow].as_secs_f64() / (4.0 * 20.0);
    for flow in [1, 2, 3] {
        assert!((share(flow) - 1.0 / 3.0).abs() < 0.05, "flow {flow}: {} {:?}", share(flow), bench.served);
    }
}

#[test]
fn the_quiet_flow_waits_for_one_end_at_most() {
    let mut set = QueueSet::new(queued(8, 1, 100), 2);
    let mut places = Vec::new();
    for _ in 0..50 {
        if let Arrival::Run(place) = set.arrive(Duration::ZERO, 1, 1, || 1) {
            places.push(place);
        }
    }
    assert_eq!(places, [Some(1), Some(1)]);
    assert!(matches!(set.arrive(MILLI, 2, 1, || 2), Arrival::Wait { queue: 2, .. }));
    let mut begun = Vec::new();
    set.finish(2 * MILLI, Some(1), 1, 2 * MILLI);
    set.dispatch(2 * MILLI, |flow, _| begun.push(flow));
    assert_eq!(begun, [2]);
}

#[test]
fn a_full_queue_refuses_and_a_level_without_queues_too() {
    let mut set = QueueSet::new(queued(1, 1, 2), 1);
    let arrive = |set: &mut QueueSet<()>| set.arrive(Duration::ZERO, 0, 1, || ());
    assert_eq!(arrive(&mut set), Arrival::Run(Some(0)));
    assert!(matches!(arrive(&mut set), Arrival::Wait { .. }));
    assert!(matches!(arrive(&mut set), Arrival::Wait { .. }));
    assert_eq!(arrive(&mut set), Arrival::Rejected(Refusal::QueueFull));
    let mut set = QueueSet::new(Mode::Reject, 1);
    assert_eq!(arrive(&mut set), Arrival::Run(None));
    assert_eq!(arrive(&mut set), Arrival::Rejected(Refusal::ConcurrencyLimit));
    let mut set = QueueSet::new(Mode::Exempt, 0);
    assert!((0..1000).all(|_| arrive(&mut set) == Arrival::Run(None)));
}

/// A wide request is not starved by narrow ones behind it, and one wider than the level runs alone.
#[test]
fn the_wide_have_their_turn() {
    let mut set = QueueSet::new(queued(4, 1, 100), 4);
    for _ in 0..4 {
        assert_eq!(set.arrive(Duration::ZERO, 0, 1, || "narrow"), Arrival::Run(Some(0)));
    }
    assert!(matches!(set.arrive(MILLI, 1, 9, || "wide"), Arrival::Wait { .. }));
    assert!(matches!(set.arrive(MILLI, 0, 1, || "narrow"), Arrival::Wait { .. }));
    let mut begun = Vec::new();
    let mut step = 2;
    // Narrow requests keep coming; in fair turns the wide one's comes, then it waits for all that run, and runs alone.
    while !begun.contains(&("wide", 1)) {
        assert!(step < 100, "starved: {begun:?}");
        set.finish(step * MILLI, Some(0), 1, MILLI);
        set.dispatch(step * MILLI, |who, queue| begun.push((who, queue)));
        assert!(
            matches!(set.arrive(step * MILLI, 0, 1, || "late"), Arrival::Wait { .. }),
            "{step} {begun:?}"
        );
        step += 1;
    }
    assert_eq!((set.executing, set.seats_in_use), (1, 9));
    assert_eq!(begun[0], ("narrow", 0));
}

#[test]
fn who_gives_up_leaves_no_trace() {
    let mut set = QueueSet::new(queued(2, 1, 10), 1);
    set.arrive(Duration::ZERO, 0, 1, || ());
    let Arrival::Wait { queue, id } = set.arrive(MILLI, 1, 1, || ()) else { panic!() };
    assert!(set.give_up(2 * MILLI, queue, id, Refusal::TimeOut));
    assert!(!set.give_up(2 * MILLI, queue, id, Refusal::TimeOut));
    assert_eq!((set.waiting, set.seats_waiting, set.totals.timed_out), (0, 0, 1));
    set.finish(3 * MILLI, Some(0), 1, 3 * MILLI);
    assert!(set.is_idle() && set.seats_in_use == 0);
}

#[test]
fn a_level_with_fewer_queues_empties_the_old_ones_first() {
    let mut set = QueueSet::new(queued(8, 1, 10), 1);
    set.arrive(Duration::ZERO, 7, 1, || 7);
    set.arrive(Duration::ZERO, 6, 1, || 6);
    set.set_mode(queued(2, 1, 10));
    assert_eq!(set.queues.len(), 8);
    let mut begun = Vec::new();
    set.finish(MILLI, Some(7), 1, MILLI);
    set.dispatch(MILLI, |who, queue| begun.push((who, queue)));
    assert_eq!(begun, [(6, 6)]);
    set.finish(2 * MILLI, Some(6), 1, MILLI);
    assert_eq!(set.queues.len(), 2);
}

struct Client {
    user: UserInfo,
    info: RequestInfo,
}

fn client(name: &str) -> Client {
    let uri = "/api/v1/namespaces/ns/configmaps".parse().unwrap();
    Client { user: UserInfo::authenticated(name, &[]), info: RequestInfo::new(&Method::GET, &uri) }
}

impl Client {
    async fn enter(&self, control: &FlowControl, seats: u32) -> Result<Ticket, Refusal> {
        let flow = control.classify(&self.user, &self.info).unwrap();
        control.enter(&flow, seats, Asker { user: &self.user.name, info: &self.info }).await
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_with_the_patience() {
    let control = FlowControl::new(Options { total_seats: 12, ..Options::default() });
    let greedy = client("greedy");
    let held = greedy.enter(&control, 1).await.unwrap();
    assert_eq!(control.classify(&greedy.user, &greedy.info).unwrap().level(), "global-default");
    let began = Instant::now();
    assert_eq!(client("other").enter(&control, 1).await.err(), Some(Refusal::TimeOut));
    assert_eq!(began.elapsed(), Duration::from_secs(15));
    drop(held);
    drop(client("other").enter(&control, 1).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_leaves_its_queue_and_its_seat() {
    let control = FlowControl::new(Options { total_seats: 12, ..Options::default() });
    let held = client("a").enter(&control, 1).await.unwrap();
    let waiting = tokio::time::timeout(MILLI, client("b").enter(&control, 1)).await;
    assert!(waiting.is_err());
    // Told to run, but dropped before it could.
    let other = client("c");
    {
        let mut entering = Box::pin(other.enter(&control, 1));
        assert!(futures::poll!(entering.as_mut()).is_pending());
        drop(held);
    }
    drop(client("d").enter(&control, 1).await.unwrap());
    let page = control.dump("dump_priority_levels", false).unwrap();
    let line = page.lines().find(|l| l.starts_with("global-default,")).unwrap();
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    assert_eq!(cells, ["global-default", "0", "true", "false", "0", "0", "3", "0", "0", "1"]);
}

/// Hundreds of requests of one client are in the queues; another client's requests come through in a few turns.
#[tokio::test(start_paused = true)]
async fn one_greedy_client_starves_nobody() {
    let control = FlowControl::new(Options::default());
    for _ in 0..400 {
        let control = control.clone();
        tokio::spawn(async move {
            let greedy = client("greedy");
            loop {
                if let Ok(ticket) = greedy.enter(&control, 10).await {
                    tokio::time::sleep(50 * MILLI).await;
                    drop(ticket);
                }
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut waits = Vec::new();
    for _ in 0..100 {
        let began = Instant::now();
        let ticket = client("modest").enter(&control, 1).await.expect("not refused");
        waits.push(began.elapsed());
        tokio::time::sleep(5 * MILLI).await;
        drop(ticket);
    }
    waits.sort();
    assert!(waits[98] <= 200 * MILLI, "p99 is {:?}", waits[98]);
}

#[tokio::test(start_paused = true)]
async fn the_busy_borrow_from_the_idle() {
    let control = FlowControl::new(Options::default());
    let limit = |control: &FlowControl| control.state().levels["global-default"].now.lock().limit;
    let nominal = limit(&control);
    let mut held = Vec::new();
    for _ in 0..nominal {
        held.push(client("busy").enter(&control, 1).await.unwrap());
    }
    for number in 0..50 {
        let control = control.clone();
        tokio::spawn(async move {
            let _ticket = client(&format!("other{number}")).enter(&control, 1).await;
            std::future::pending::<()>().await;
        });
    }
    tokio::time::sleep(Duration::from_secs(11)).await;
    control.adjust_if_due();
    assert!(limit(&control) > nominal + 40, "{} of {nominal}", limit(&control));
}

#[test]
fn nobody_is_without_a_place() {
    let control = FlowControl::new(Options::default());
    let info = client("x").info;
    let flow = control.classify(&UserInfo::default(), &info).unwrap();
    assert_eq!((flow.schema(), flow.level()), ("catch-all", "catch-all"));
    // Nor without the mandatory objects: they are always in force.
    control.configure(&[], &[]);
    assert_eq!(control.classify(&client("x").user, &info).unwrap().schema(), "catch-all");
    let root = UserInfo::authenticated("root", &["system:masters"]);
    assert!(control.classify(&root, &info).unwrap().is_exempt());
}

#[test]
fn dumps_are_tables() {
    let control = FlowControl::new(Options::default());
    let page = control.dump("dump_queues", false).unwrap();
    assert_eq!(page.lines().count(), 1 + 64 * 2 + 16 + 128 * 3);
    assert!(page.starts_with("PriorityLevelName, Index, "), "{}", page.lines().next().unwrap());
    assert_eq!(control.dump("dump_requests", true).unwrap().lines().count(), 1);
    assert!(control.dump("nothing", false).is_none());
}

/// The goal is one microsecond in a release build; debug builds are an order slower, so this only prints.
#[tokio::test]
async fn an_uncontended_request_costs_little() {
    let control = FlowControl::new(Options::default());
    let alice = client("alice");
    let rounds = 20_000u32;
    let began = std::time::Instant::now();
    for _ in 0..rounds {
        drop(alice.enter(&control, 1).await.unwrap());
    }
    println!("{:?} a request", began.elapsed() / rounds);
    let mut text = coracle_component_base::metrics::Text::default();
    control.render(&mut text);
    let page = text.finish();
    let line = r#"apiserver_flowcontrol_dispatched_requests_total{flow_schema="global-default",priority_level="global-default"} 20000"#;
    assert!(page.contains(line), "{page}");
}
