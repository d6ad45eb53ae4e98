//! How far something is that takes long: a line on standard error, where a person looks at it, and nothing in a log.

use coracle_apiserver::store::sled::{Doing, Step};
use std::cell::RefCell;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// What is done within it needs no line.
const WAIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two states of the line.
const REDRAW_INTERVAL: Duration = Duration::from_millis(250);

/// Of bytes that are read or written.
pub struct Progress {
    what: String,
    /// Where it is known how many there will be.
    total: Option<u64>,
    done: u64,
    next: Instant,
    shown: bool,
    /// `None` where nobody looks.
    out: Option<Box<dyn Write + Send>>,
}

impl Progress {
    /// `what` is being done, such as "reading FILE".
    pub fn new(what: impl Into<String>, total: Option<u64>) -> Self {
        let stderr = io::stderr();
        let out = stderr.is_terminal().then(|| Box::new(stderr) as Box<dyn Write + Send>);
        Self::to(out, what, total, Instant::now())
    }

    fn to(
        out: Option<Box<dyn Write + Send>>,
        what: impl Into<String>,
        total: Option<u64>,
        now: Instant,
    ) -> Self {
        Self { what: what.into(), total, done: 0, next: now + WAIT_TIMEOUT, shown: false, out }
    }

    /// Counts what passes.
    pub fn over<T>(self, inner: T) -> Counted<T> {
        Counted { inner, progress: self }
    }

    /// Of what passes by other ways.
    pub fn count(&mut self, bytes: usize) {
        self.advance(bytes, Instant::now());
    }

    fn advance(&mut self, bytes: usize, now: Instant) {
        self.reach(self.done + bytes as u64, now);
    }

    fn reach(&mut self, done: u64, now: Instant) {
        self.done = done;
        if now < self.next {
            return;
        }
        let line = self.line();
        if let Some(out) = &mut self.out {
            // Who looks away misses nothing else.
            let _ = write!(out, "\r\x1b[K{line}").and_then(|()| out.flush());
            self.shown = true;
        }
        self.next = now + REDRAW_INTERVAL;
    }

    fn line(&self) -> String {
        let mib = |bytes: u64| format!("{}.{}", bytes >> 20, ((bytes >> 10) & 1023) * 10 / 1024);
        match self.total.filter(|total| *total > 0) {
            Some(total) => {
                let percent = self.done.min(total).saturating_mul(100) / total;
                format!("{}: {} of {} MiB, {percent} %", self.what, mib(self.done), mib(total))
            }
            None => format!("{}: {} MiB", self.what, mib(self.done)),
        }
    }
}

/// Of what is done with a store, one after the other.
pub struct Steps {
    path: String,
    now: RefCell<Option<(Doing, Progress)>>,
}

impl Steps {
    pub fn of(path: &Path) -> Self {
        Self { path: path.display().to_string(), now: RefCell::new(None) }
    }

    pub fn take(&self, step: Step) {
        let mut now = self.now.borrow_mut();
        if now.as_ref().is_none_or(|(doing, _)| *doing != step.doing) {
            let what = format!("{} {}", step.doing, self.path);
            *now = Some((step.doing, Progress::new(what, Some(step.total))));
        }
        if let Some((_, progress)) = now.as_mut() {
            progress.reach(step.done, Instant::now());
        }
    }
}

/// The line is of the moment: what comes after it stands in its place.
impl Drop for Progress {
    fn drop(&mut self) {
        if let (true, Some(out)) = (self.shown, &mut self.out) {
            let _ = write!(out, "\r\x1b[K").and_then(|()| out.flush());
        }
    }
}

/// Something that is read or written, with its progress.
pub struct Counted<T> {
    inner: T,
    progress: Progress,
}

impl<T: Read> Read for Counted<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.progress.advance(count, Instant::now());
        Ok(count)
    }
}

impl<T: Write> Write for Counted<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.progress.advance(count, Instant::now());
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_comes_after_a_second_and_goes_at_the_end() {
        let (screen, began) = (Screen::default(), Instant::now());
        let at = |millis| began + Duration::from_millis(millis);
        let seen = || String::from_utf8(screen.0.lock().clone()).expect("text");
        let mut progress = Progress::to(Some(Box::new(screen.clone())), "reading b", Some(4 << 20), began);
        progress.advance(1 << 20, at(900));
        assert_eq!(seen(), "", "most things take no second");
        progress.advance(1 << 19, at(1000));
        assert_eq!(seen(), "\r\x1b[Kreading b: 1.5 of 4.0 MiB, 37 %");
        progress.advance(1 << 19, at(1100));
        assert_eq!(seen().matches('%').count(), 1, "the eye is slower");
        progress.advance(3 << 20, at(1300));
        assert!(seen().ends_with("reading b: 5.0 of 4.0 MiB, 100 %"), "{}", seen());
        drop(progress);
        assert!(seen().ends_with("\r\x1b[K"));
    }

    #[test]
    fn reading_a_store_and_writing_it_have_lines_of_their_own() {
        let steps = Steps::of(Path::new("/db"));
        let line = |steps: &Steps| steps.now.borrow().as_ref().map(|(_, progress)| progress.line());
        steps.take(Step { doing: Doing::Reading, done: 1 << 20, total: 4 << 20 });
        steps.take(Step { doing: Doing::Reading, done: 2 << 20, total: 4 << 20 });
        assert_eq!(line(&steps).as_deref(), Some("reading /db: 2.0 of 4.0 MiB, 50 %"));
        steps.take(Step { doing: Doing::Writing, done: 1 << 20, total: 1 << 20 });
        assert_eq!(line(&steps).as_deref(), Some("writing /db: 1.0 of 1.0 MiB, 100 %"));
    }

    #[test]
    fn what_was_quick_or_is_not_looked_at_leaves_no_trace() {
        let (screen, began) = (Screen::default(), Instant::now());
        let mut quick = Progress::to(Some(Box::new(screen.clone())), "x", None, began);
        quick.advance(7, began);
        drop(quick);
        assert!(screen.0.lock().is_empty());
        let mut unseen = Progress::to(None, "x", None, began);
        unseen.advance(7 << 20, began + WAIT_TIMEOUT);
        assert_eq!(unseen.line(), "x: 7.0 MiB");
        let mut copied = Vec::new();
        let progress = Progress::to(None, "x", None, began);
        io::copy(&mut progress.over(&b"abc"[..]), &mut copied).expect("copied");
        assert_eq!(copied, b"abc");
    }
}
