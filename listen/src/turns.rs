//! Turns at something that waits: so many in all, and so many for each who asks.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use tokio::sync::oneshot;

pub struct Turns<K: Hash + Eq + Clone> {
    most: usize,
    each: usize,
    state: Mutex<State<K>>,
}

struct State<K: Hash + Eq + Clone> {
    taken: usize,
    of_each: HashMap<K, usize>,
    /// Who waits, each in a line of its own, in the order in which the lines have their next turn.
    lines: VecDeque<(K, VecDeque<oneshot::Sender<Turn<K>>>)>,
}

/// Given back when it is dropped.
pub struct Turn<K: Hash + Eq + Clone> {
    /// `None` once it is given back.
    turns: Option<Arc<Turns<K>>>,
    whose: K,
}

impl<K: Hash + Eq + Clone> Turns<K> {
    pub fn new(most: usize, each: usize) -> Arc<Self> {
        let state = State { taken: 0, of_each: HashMap::new(), lines: VecDeque::new() };
        Arc::new(Self { most, each, state: Mutex::new(state) })
    }

    /// A turn at once, or none.
    pub fn take(self: &Arc<Self>, whose: K) -> Option<Turn<K>> {
        let taken = self.state.lock().take(&whose, self.most, self.each);
        taken.then(|| self.turn(whose))
    }

    /// A turn when it is free. Those who wait have theirs one after the other, however many times somebody asks.
    pub async fn wait(self: &Arc<Self>, whose: K) -> Turn<K> {
        loop {
            let told = {
                let mut state = self.state.lock();
                if state.take(&whose, self.most, self.each) {
                    drop(state);
                    return self.turn(whose);
                }
                state.stand_in_line(&whose)
            };
            if let Ok(turn) = told.await {
                return turn;
            }
        }
    }

    fn turn(self: &Arc<Self>, whose: K) -> Turn<K> {
        Turn { turns: Some(self.clone()), whose }
    }

    /// Gives a turn back, and on to whoever is next.
    fn pass_on(self: &Arc<Self>, whose: &K) {
        self.state.lock().give_back(whose);
        loop {
            let next = self.state.lock().next(self.most, self.each);
            let Some((whose, tell)) = next else { return };
            // Who went meanwhile has had no turn.
            if let Err(mut refused) = tell.send(self.turn(whose)) {
                refused.turns = None;
                self.state.lock().give_back(&refused.whose);
            }
        }
    }
}

impl<K: Hash + Eq + Clone> State<K> {
    fn take(&mut self, whose: &K, most: usize, each: usize) -> bool {
        if self.taken >= most || self.of_each.get(whose).is_some_and(|own| *own >= each) {
            return false;
        }
        self.taken += 1;
        *self.of_each.entry(whose.clone()).or_default() += 1;
        true
    }

    fn give_back(&mut self, whose: &K) {
        self.taken -= 1;
        if let Some(own) = self.of_each.get_mut(whose) {
            *own -= 1;
            if *own == 0 {
                self.of_each.remove(whose);
            }
        }
    }

    fn stand_in_line(&mut self, whose: &K) -> oneshot::Receiver<Turn<K>> {
        let (tell, told) = oneshot::channel();
        match self.lines.iter_mut().find(|(owner, _)| owner == whose) {
            Some((_, line)) => {
                // Who went does not stand there any more.
                line.retain(|tell| !tell.is_closed());
                line.push_back(tell);
            }
            None => self.lines.push_back((whose.clone(), VecDeque::from([tell]))),
        }
        told
    }

    /// The next in line whose turn it can be; it is taken already.
    fn next(&mut self, most: usize, each: usize) -> Option<(K, oneshot::Sender<Turn<K>>)> {
        for _ in 0..self.lines.len() {
            let (whose, mut line) = self.lines.pop_front()?;
            line.retain(|tell| !tell.is_closed());
            if line.is_empty() {
                continue;
            }
            let next = if self.take(&whose, most, each) { line.pop_front() } else { None };
            if !line.is_empty() {
                self.lines.push_back((whose.clone(), line));
            }
            if let Some(tell) = next {
                return Some((whose, tell));
            }
        }
        None
    }
}

impl<K: Hash + Eq + Clone> Drop for Turn<K> {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            turns.pass_on(&self.whose);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::{FutureExt, join_all};

    #[test]
    fn nobody_takes_all_turns() {
        let turns = Turns::new(5, 2);
        let held: Vec<Turn<u8>> = (0..4).filter_map(|n| turns.take(n / 2)).collect();
        assert_eq!(held.len(), 4);
        assert!(turns.take(0).is_none());
        let last = turns.take(2);
        assert!(last.is_some() && turns.take(3).is_none());
        drop(held);
        assert!(turns.take(0).is_some());
        drop(last);
        assert_eq!(turns.state.lock().of_each.len(), 0);
    }

    #[tokio::test]
    async fn who_waits_often_has_one_turn_after_the_other_like_everybody() {
        let (turns, order) = (Turns::new(1, 1), Mutex::new(Vec::new()));
        let held = turns.take('a');
        let wait = async |whose| {
            let _turn = turns.wait(whose).await;
            order.lock().push(whose);
            tokio::task::yield_now().await;
        };
        let mut all = Box::pin(join_all("aaaabcb".chars().map(wait)));
        assert!(all.as_mut().now_or_never().is_none());
        drop(held);
        all.await;
        assert_eq!(order.lock().iter().collect::<String>(), "abcabaa");
        let state = turns.state.lock();
        assert!(state.taken == 0 && state.of_each.is_empty() && state.lines.is_empty());
    }

    #[tokio::test]
    async fn who_goes_does_not_keep_the_others_waiting() {
        let turns = Turns::new(1, 1);
        let held = turns.take(0);
        let mut gone: Vec<_> = (0..1000).map(|n| Box::pin(turns.wait(n % 3))).collect();
        for wait in &mut gone {
            assert!(wait.as_mut().now_or_never().is_none());
        }
        let mut stays = Box::pin(turns.wait(7));
        assert!(stays.as_mut().now_or_never().is_none());
        // One of them has been told already.
        drop(held);
        drop(gone);
        drop(stays.await);
        assert_eq!(turns.state.lock().taken, 0);
        assert!(turns.take(0).is_some());
    }
}
