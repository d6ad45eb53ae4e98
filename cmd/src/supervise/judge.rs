//! From the signs of life of a run's tasks to what hangs; knows no clock.

use coracle_client::beat::{Patience, Sign};
use std::collections::HashMap;
use std::fmt;

/// Looks in a row, two seconds apart. Nothing that a component computes in one go takes so long, on slow machines either.
const BLOCKED_LOOKS: u32 = 7;
/// A runtime that is this busy has a storm behind it; a longer one is a hang.
const SILENT_LOOKS: u32 = 8;
/// Longer than whatever answers at once, a third more than the longest pause of a store that flushes.
const STUCK_LOOKS: u32 = 10;
/// Two minutes: twice the longest time limit of a request or of another program.
const STUCK_LONG_LOOKS: u32 = 60;

/// What a task does that does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A poll does not return.
    Blocked,
    /// The runtime does not come to it.
    Silent,
    /// It waits in the middle of its work.
    Stuck,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hang {
    pub task: &'static str,
    pub how: How,
}

impl Hang {
    /// Whether nothing in the process can end it: a thread is lost, or all of them are.
    pub fn is_beyond_reach(self) -> bool {
        self.how != How::Stuck
    }
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.how {
            How::Blocked => "does not give its thread back",
            How::Silent => "is not run any more",
            How::Stuck => "waits in the middle of its work",
        };
        write!(f, "hangs: task {} {how}", self.task)
    }
}

struct Seen {
    polls: u64,
    still: u32,
    silent: u32,
}

/// What was seen of one run.
#[derive(Default)]
pub struct Judge {
    seen: HashMap<usize, Seen>,
}

impl Judge {
    /// What hangs, by a further look. Tasks go by the numbers of [`coracle_client::beat::Beat::look`].
    pub fn look(&mut self, signs: &[(usize, Sign)]) -> Option<Hang> {
        self.seen.retain(|task, _| signs.iter().any(|(alive, _)| alive == task));
        signs.iter().filter_map(|(task, sign)| self.take_in(*task, sign)).next()
    }

    fn take_in(&mut self, task: usize, sign: &Sign) -> Option<Hang> {
        let seen = self.seen.entry(task).or_insert(Seen { polls: sign.polls, still: 0, silent: 0 });
        let limit = match (sign.inside, sign.working) {
            (true, _) => Some((BLOCKED_LOOKS, How::Blocked)),
            (false, Some(Patience::Usual)) => Some((STUCK_LOOKS, How::Stuck)),
            (false, Some(Patience::Long)) => Some((STUCK_LONG_LOOKS, How::Stuck)),
            (false, None) => None,
        };
        seen.still = if limit.is_some() && seen.polls == sign.polls { seen.still + 1 } else { 0 };
        seen.silent = if sign.answered || sign.inside { 0 } else { seen.silent + 1 };
        seen.polls = sign.polls;
        let hang = |how| Hang { task: sign.name, how };
        match limit {
            Some((limit, how)) if seen.still >= limit => Some(hang(how)),
            _ => (seen.silent >= SILENT_LOOKS).then(|| hang(How::Silent)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sign(polls: u64, inside: bool, working: Option<Patience>, answered: bool) -> Sign {
        Sign { name: "task", polls, inside, working, answered }
    }

    /// After how many looks at the same sign it counts as hanging.
    fn after(sign: Sign) -> Option<(u32, How)> {
        let mut judge = Judge::default();
        judge.look(&[(1, Sign { polls: sign.polls.wrapping_sub(1), ..sign })]);
        (1..200).find_map(|look| Some((look, judge.look(&[(1, sign)])?.how)))
    }

    #[test]
    fn who_stands_still_is_found_in_time() {
        assert_eq!(after(sign(5, true, None, false)), Some((8, How::Blocked)));
        assert_eq!(after(sign(5, false, Some(Patience::Usual), true)), Some((11, How::Stuck)));
        assert_eq!(after(sign(5, false, Some(Patience::Long), true)), Some((61, How::Stuck)));
        assert_eq!(after(sign(5, false, None, false)), Some((7, How::Silent)));
        assert_eq!(after(sign(5, false, None, true)), None, "waits for work");
    }

    #[test]
    fn who_goes_on_is_left_alone() {
        let mut judge = Judge::default();
        for polls in 0..200 {
            let busy = sign(polls, polls % 2 == 0, Some(Patience::Usual), polls % 3 == 0);
            assert_eq!(judge.look(&[(1, busy)]), None);
        }
        // Another task in the same place has another beginning.
        for _ in 0..5 {
            assert_eq!(judge.look(&[(2, sign(7, true, None, false))]), None);
        }
        assert_eq!(judge.look(&[]), None);
        for _ in 0..5 {
            assert_eq!(judge.look(&[(2, sign(7, true, None, false))]), None);
        }
    }
}
