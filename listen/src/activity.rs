//! One connection's clock: which of its requests wait for whom, and since when nothing has moved.
//!
//! A request is *answering* until its handler returns, then its answer is *sending* while the client is to take what is
//! there, or *waiting* while there is nothing yet (a watch, a log that is followed). Only a connection on which everything
//! waits for the client can end by time.

use crate::limits::Limits;
use parking_lot::Mutex;
use std::fmt;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Smallest write that counts as an answer on its way; frames that acknowledge a client's own are smaller, so that who
/// pings does not seem to read.
const PROGRESS_BYTES: usize = 512;

/// Why a connection was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// No request for a long time.
    Idle,
    /// No whole head of a request in its time.
    Head,
    /// The client took nothing of its answers.
    Stuck,
    /// Much was sent without a request, or many requests were taken back.
    Flood,
    /// Others needed the place.
    Evicted,
    /// There was no place, and nobody who could go.
    Full,
}

impl End {
    /// For labels of metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Head => "head",
            Self::Stuck => "stuck",
            Self::Flood => "flood",
            Self::Evicted => "evicted",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

/// Shared by a connection, its socket and its answers.
pub struct Activity {
    limits: Limits,
    state: Mutex<State>,
    told: Notify,
}

struct State {
    /// Since then nothing has moved.
    since: Instant,
    /// The first byte after the last request: of the next one's head.
    head: Option<Instant>,
    /// Whether there was a request yet.
    asked: bool,
    http2: bool,
    /// The connection became something else, whose business its end is.
    upgraded: bool,
    /// A request was answered whose body is not read to its end.
    unread: bool,
    /// Requests without an end of their answer.
    open: u32,
    /// Of them, those whose client is to take what is there.
    sending: u32,
    unasked_bytes: u64,
    resets: u32,
    resets_since: Instant,
    ended: Option<End>,
}

impl Activity {
    pub fn new(limits: Limits) -> Self {
        let now = Instant::now();
        let state = State {
            since: now,
            head: None,
            asked: false,
            http2: false,
            upgraded: false,
            unread: false,
            open: 0,
            sending: 0,
            unasked_bytes: 0,
            resets: 0,
            resets_since: now,
            ended: None,
        };
        Self { limits, state: Mutex::new(state), told: Notify::new() }
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A request's head is there.
    pub(crate) fn asked(&self, http2: bool) {
        let mut state = self.state.lock();
        state.since = Instant::now();
        (state.head, state.asked, state.http2) = (None, true, http2);
        state.open += 1;
        state.unasked_bytes = 0;
    }

    /// Its answer is there, and sent from now on.
    pub(crate) fn sending(&self, upgrade: bool) {
        let mut state = self.state.lock();
        state.since = Instant::now();
        state.sending += 1;
        state.upgraded |= upgrade;
    }

    /// The client took what was there. `more` says whether there is more to take, so that it is the client's turn
    /// again; `was` whether it was before.
    pub(crate) fn took(&self, was: bool, more: bool) {
        let mut state = self.state.lock();
        state.since = Instant::now();
        state.sending = state.sending - u32::from(was) + u32::from(more);
    }

    /// An answer's end, sent whole or not.
    pub(crate) fn answered(&self, sending: bool) {
        let mut state = self.state.lock();
        state.since = Instant::now();
        state.open -= 1;
        state.sending -= u32::from(sending);
    }

    /// The client did not wait for an answer. `sending` if it was the client's turn: the request had not been begun.
    pub(crate) fn taken_back(&self, sending: bool) {
        let mut state = self.state.lock();
        let now = Instant::now();
        state.since = now;
        state.open -= 1;
        state.sending -= u32::from(sending);
        if now - state.resets_since > self.limits.resets_within {
            (state.resets, state.resets_since) = (0, now);
        }
        state.resets += 1;
        if state.resets > self.limits.resets {
            state.ended.get_or_insert(End::Flood);
            self.told.notify_one();
        }
    }

    /// Bytes came in. False if they are more than anybody sends who wants something.
    pub(crate) fn read(&self, bytes: usize) -> bool {
        let mut state = self.state.lock();
        if state.open > 0 || state.upgraded {
            return true;
        }
        state.head.get_or_insert_with(Instant::now);
        state.unasked_bytes += bytes as u64;
        if state.unasked_bytes > self.limits.unasked_bytes {
            state.ended.get_or_insert(End::Flood);
        }
        state.ended.is_none()
    }

    /// Bytes went out.
    pub(crate) fn wrote(&self, bytes: usize) {
        if bytes >= PROGRESS_BYTES {
            self.state.lock().since = Instant::now();
        }
    }

    /// The connection ends behind an answer whose request was not read to its end.
    pub(crate) fn leaves_unread(&self) {
        self.state.lock().unread = true;
    }

    pub(crate) fn has_unread(&self) -> bool {
        self.state.lock().unread
    }

    /// Ends the connection from outside.
    pub(crate) fn end(&self, why: End) {
        self.state.lock().ended.get_or_insert(why);
        self.told.notify_one();
    }

    /// No request is open, and the connection is nothing else.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.open == 0 && !state.upgraded
    }

    /// Returns when the connection is to end.
    pub async fn ended(&self) -> End {
        loop {
            let again = match self.look() {
                Ok(again) => again,
                Err(why) => return why,
            };
            tokio::select! {
                () = tokio::time::sleep_until(again) => {}
                () = self.told.notified() => {}
            }
        }
    }

    /// When to look again, or why the connection is at its end.
    fn look(&self) -> Result<Instant, End> {
        let now = Instant::now();
        let state = self.state.lock();
        match (state.ended, state.due(&self.limits)) {
            (Some(why), _) => Err(why),
            (None, Some((due, why))) if due <= now => Err(why),
            // Whatever begins to wait for the client from now on is not due before that.
            (None, due) => {
                Ok(due.map_or(now + self.limits.stuck, |(due, _)| due).min(now + self.limits.head))
            }
        }
    }
}

impl State {
    fn due(&self, limits: &Limits) -> Option<(Instant, End)> {
        let after = |from: Instant, time: Duration, why| Some((from + time, why));
        if self.upgraded || self.open > self.sending {
            return None;
        }
        match (self.open, self.asked, self.head) {
            (1.., _, _) => after(self.since, limits.stuck, End::Stuck),
            (0, false, _) => after(self.since, limits.head, End::Head),
            // A slow head is one of HTTP/1.1 alone: between HTTP/2's requests there are frames of other kinds.
            (0, true, Some(head)) if !self.http2 => after(head, limits.head, End::Head),
            (0, true, _) => after(self.since, limits.idle, End::Idle),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What ended it, and after how many seconds.
    async fn end_of(activity: &Activity) -> (End, u64) {
        let began = Instant::now();
        let why = activity.ended().await;
        (why, began.elapsed().as_secs())
    }

    fn asked(http2: bool) -> Activity {
        let activity = Activity::new(Limits::default());
        activity.asked(http2);
        activity
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_nothing_is_ended() {
        let silent = Activity::new(Limits::default());
        assert_eq!(end_of(&silent).await, (End::Head, 32));
        let trickling = Activity::new(Limits::default());
        tokio::join!(async { assert_eq!(end_of(&trickling).await, (End::Head, 32)) }, async {
            for _ in 0..40 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                trickling.read(1);
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_end_and_slow_heads_earlier() {
        for http2 in [false, true] {
            let activity = asked(http2);
            activity.sending(false);
            activity.answered(true);
            assert_eq!(end_of(&activity).await, (End::Idle, 90));
            let activity = asked(http2);
            activity.sending(false);
            activity.answered(true);
            activity.read(1);
            assert_eq!(end_of(&activity).await, if http2 { (End::Idle, 90) } else { (End::Head, 32) });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_the_server_lives_on() {
        let handler = asked(true);
        let watch = asked(true);
        watch.sending(false);
        watch.took(true, false);
        let stream = asked(false);
        stream.sending(true);
        stream.answered(true);
        for lasting in [handler, watch, stream] {
            let day = Duration::from_secs(86_400);
            assert!(tokio::time::timeout(day, lasting.ended()).await.is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_stuck_unless_another_stream_moves() {
        let activity = asked(true);
        activity.sending(false);
        assert_eq!(end_of(&activity).await, (End::Stuck, 60));
        let activity = asked(true);
        activity.sending(false);
        activity.asked(true);
        assert!(tokio::time::timeout(Duration::from_secs(600), activity.ended()).await.is_err());
        activity.sending(false);
        // Pings are no progress, pieces of answers are.
        tokio::time::sleep(Duration::from_secs(50)).await;
        activity.wrote(17);
        tokio::time::sleep(Duration::from_secs(9)).await;
        activity.wrote(16_384);
        assert_eq!(end_of(&activity).await.0, End::Stuck);
        assert!(!activity.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn floods_end() {
        let activity = asked(true);
        activity.sending(false);
        // The body of a request may be as long as it likes.
        assert!(activity.read(100 << 20));
        activity.answered(true);
        assert!(activity.read(1 << 20));
        assert!(!activity.read(4 << 20));
        assert_eq!(end_of(&activity).await, (End::Flood, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_are_taken_back_count_for_a_while() {
        let activity = Activity::new(Limits { resets: 3, ..Limits::default() });
        let take_back = || {
            activity.asked(true);
            activity.taken_back(false);
        };
        for _ in 0..3 {
            for _ in 0..3 {
                take_back();
            }
            tokio::time::sleep(Duration::from_secs(11)).await;
            assert!(activity.look().is_ok());
        }
        for _ in 0..4 {
            take_back();
        }
        assert_eq!(end_of(&activity).await, (End::Flood, 0));
    }
}
