//! A rolling update under load: pods of a Service are replaced one after the other while clients open connections all the
//! time. No request fails, and a connection to a pod that is on its way out goes on.

use super::world::{From, pod, service};
use super::{Suite, web};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// How often the one pod is replaced by the other.
const ROUNDS: u8 = 6;
/// Questions that each client asks in each state; each takes a connection of its own.
const QUESTIONS: usize = 10;

pub fn rolls_under_load(suite: &mut Suite) {
    let family = suite.family();
    let to = SocketAddr::new(service(family, 9), 80);
    suite.has(&[web(family, "web", 9, &[(2, true)])]);
    let loads = [From::Node, From::Pod(4), From::Outside].map(|from| suite.world.load(from, to));
    let ask_on = || loads.iter().for_each(|load| load.until_asked(QUESTIONS));
    for round in 0..ROUNDS {
        let (old, new) = if round % 2 == 0 { (2, 3) } else { (3, 2) };
        ask_on();
        let mut talk = suite.world.connect(From::Pod(4), to).expect("a connection");
        let before = talk.ask().expect("an answer").server();
        assert_eq!(before, Some(pod(family, old)));
        suite.has(&[web(family, "web", 9, &[(old, true), (new, true)])]);
        ask_on();
        suite.has(&[web(family, "web", 9, &[(new, true)])]);
        ask_on();
        let after = talk.ask().map(|answer| answer.server());
        assert_eq!(after.ok().flatten(), before, "who began goes on, round {round}");
        assert_eq!(suite.servers(From::Pod(4), to.ip(), 80), [Some(pod(family, new))]);
    }
    for load in loads {
        let (from, answers) = load.end();
        let failed: Vec<_> = answers.iter().filter(|answer| answer.server().is_none()).collect();
        assert!(failed.is_empty(), "of {} questions of {from:?}: {failed:?}", answers.len());
        let servers: BTreeSet<_> = answers.iter().filter_map(|answer| answer.server()).collect();
        assert_eq!(servers, BTreeSet::from([pod(family, 2), pod(family, 3)]), "{from:?}");
    }
}
