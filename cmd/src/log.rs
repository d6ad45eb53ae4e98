//! The log on standard error. A line is written once; while the same line comes again it is counted, and the count is
//! written when its period is over. Whoever reads the log sees what goes on, and a failure that is tried again every
//! second for a day is a few lines and not a full disk.
//!
//! Lines of the levels `debug` and `trace` are what somebody asked to see each of, so they are never counted.

pub mod parts;
mod repeats;

use repeats::{Repeats, Told};
use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Notify;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

/// The process's log, from [`begin`] to its end.
#[derive(Clone)]
pub struct Log {
    shared: Arc<Shared>,
}

struct Shared {
    repeats: parking_lot::Mutex<Repeats>,
    /// Something is counted that nobody waits for yet.
    counted: Notify,
    colour: bool,
}

/// Sends what the filter lets through to standard error. Once in a process.
pub fn begin(filter: Targets) -> Log {
    let colour = std::io::stderr().is_terminal();
    let shared = Shared { repeats: parking_lot::Mutex::default(), counted: Notify::new(), colour };
    let log = Log { shared: Arc::new(shared) };
    let line = Format::default().without_time().with_ansi(colour);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .event_format(Lines { log: log.clone(), line });
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    log
}

impl Log {
    /// Writes what was counted, each when its period is over. Without anything counted it sleeps.
    pub async fn tell_counts(self) {
        loop {
            let due = self.shared.repeats.lock().due();
            match due {
                None => self.shared.counted.notified().await,
                Some(due) => {
                    tokio::time::sleep_until(due.into()).await;
                    self.write(Some(Instant::now()));
                }
            }
        }
    }

    /// Writes every count, because the process ends.
    pub fn end(&self) {
        self.write(None);
    }

    fn write(&self, by: Option<Instant>) {
        let told = self.shared.repeats.lock().take(by);
        let mut text = String::new();
        for told in told {
            // Writing to a string cannot fail.
            let _ = self.count(&told, Writer::new(&mut text));
        }
        // There is nowhere to tell that standard error is gone.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    fn count(&self, told: &Told, mut writer: Writer<'_>) -> fmt::Result {
        self.time(&mut writer)?;
        let line = told.line.trim_end_matches('\n');
        let minutes = repeats::PERIOD.as_secs() / 60;
        if told.others {
            return writeln!(
                writer,
                "{line} ({} such lines in {minutes} minutes, this was the first)",
                told.times
            );
        }
        writeln!(writer, "{line} ({} times more in {minutes} minutes)", told.times)
    }

    fn time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        if !self.shared.colour {
            SystemTime.format_time(writer)?;
            return writer.write_char(' ');
        }
        writer.write_str("\x1b[2m")?;
        SystemTime.format_time(writer)?;
        writer.write_str("\x1b[0m ")
    }

    /// Whether the line is to be written now.
    fn offer(&self, event: &Event<'_>, line: &str) -> bool {
        if *event.metadata().level() > Level::INFO {
            return true;
        }
        let new = self.shared.repeats.lock().offer(event.metadata().callsite(), line, Instant::now());
        if !new {
            self.shared.counted.notify_one();
        }
        new
    }
}

/// As the default format, and nothing for a line that is counted instead.
struct Lines {
    log: Log,
    line: Format<Full, ()>,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.line.format_event(context, Writer::new(&mut line), event)?;
        if !self.log.offer(event, &line) {
            return Ok(());
        }
        parts::tell(event.metadata().target(), &line);
        self.log.time(&mut writer)?;
        writer.write_str(&line)
    }
}
