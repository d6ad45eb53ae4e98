//! How long a new node took from the machine's start to being Ready, step by step (upstream's `NodeStartupLatencyTracker`).

use coracle_metrics::Text;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// When what happened. A step that was missed leaves all of it untold: the node was there before this kubelet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    booted: Option<Timestamp>,
    began: Option<Timestamp>,
    attempted: Option<Timestamp>,
    registered: Option<Timestamp>,
    ready: Option<Timestamp>,
    /// There is a node already.
    over: bool,
}

/// The first start of this process' node; later ones change nothing.
#[derive(Debug, Default)]
pub struct Startup(Mutex<Times>);

impl Startup {
    /// The kubelet begins; `booted` is when the machine did, where that is known.
    pub fn began(&self, booted: Option<Timestamp>) {
        let mut times = self.0.lock();
        if times.began.is_none() {
            (times.booted, times.began) = (booted, Some(Timestamp::now()));
        }
    }

    /// The node is about to be registered.
    pub fn attempted(&self) {
        self.0.lock().attempted.get_or_insert_with(Timestamp::now);
    }

    /// The node has been created.
    pub fn registered(&self) {
        let mut times = self.0.lock();
        if !times.over {
            times.registered.get_or_insert_with(Timestamp::now);
            times.over = true;
        }
    }

    /// The node was there before this kubelet: nothing is told of its start.
    pub fn was_there(&self) {
        self.0.lock().over = true;
    }

    /// The API server knows that the node is Ready.
    pub fn ready(&self) {
        let mut times = self.0.lock();
        if times.registered.is_some() {
            times.ready.get_or_insert_with(Timestamp::now);
        }
    }

    /// Writes nothing until all is known.
    pub fn render(&self, page: &mut Text) {
        let times = *self.0.lock();
        let all = (times.booted, times.began, times.attempted, times.registered, times.ready);
        let (Some(booted), Some(began), Some(attempted), Some(registered), Some(ready)) = all else { return };
        for (step, help, from, to) in [
            ("_pre_kubelet", "before the kubelet began", booted, began),
            ("_pre_registration", "before it was registered", began, attempted),
            ("_registration", "while it was registered", attempted, registered),
            ("_post_registration", "after it was registered", registered, ready),
            ("", "in total", booted, ready),
        ] {
            let name = format!("kubelet_node_startup{step}_duration_seconds");
            let help = format!("Duration in seconds of the node's start, {help}");
            let took: SignedDuration = to.duration_since(from);
            page.single(&name, &help, "gauge", took.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(startup: &Startup) -> String {
        let mut page = Text::default();
        startup.render(&mut page);
        page.finish()
    }

    #[test]
    fn a_new_node_tells_of_its_start_once_it_is_ready() {
        let startup = Startup::default();
        startup.began(Some(Timestamp::now() - SignedDuration::from_secs(100)));
        startup.attempted();
        startup.ready();
        assert_eq!(shown(&startup), "", "a node that was there already");
        startup.registered();
        assert_eq!(shown(&startup), "");
        startup.ready();
        let page = shown(&startup);
        for step in ["_pre_kubelet", "_pre_registration", "_registration", "_post_registration", ""] {
            assert!(page.contains(&format!("\nkubelet_node_startup{step}_duration_seconds ")), "{page}");
        }
        let begun = |line: &&str| line.starts_with("kubelet_node_startup_pre_kubelet_duration_seconds 10");
        assert!(page.lines().any(|line| begun(&line)), "{page}");
        let told = shown(&startup);
        startup.attempted();
        startup.ready();
        startup.registered();
        assert_eq!(shown(&startup), told, "the first start counts");
        let old = Startup::default();
        old.began(Some(Timestamp::now()));
        old.attempted();
        old.was_there();
        old.registered();
        old.ready();
        assert_eq!(shown(&old), "", "somebody deleted the node later");
    }
}
