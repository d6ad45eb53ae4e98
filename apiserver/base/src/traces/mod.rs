//! Traces of requests, sent to a collector by OpenTelemetry's protocol, as upstream's `--tracing-config-file` asks for
//! (<https://kubernetes.io/docs/concepts/cluster-administration/system-traces/>). Without that file nothing is done for
//! them but to hand a client's `traceparent` on.
//!
//! A request is a span, with one inside it for each of its steps. Who is in `system:masters` or `system:monitoring` has
//! requests in traces of its own; others' begin a new trace that names theirs, so that nobody can have everything traced.

mod config;
mod context;
mod encode;
mod export;
mod span;

pub use config::{Config, Endpoint};
pub use context::{Context, HEADER, current, within};
pub use span::{Attribute, Attributes, Part, Span};

use crate::metrics::{Counter, Text};
use parking_lot::Mutex;
use span::Finished;
use std::sync::Arc;
use tokio::sync::mpsc::{self, Sender};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Spans that may wait, as in OpenTelemetry's batch processor; beyond, they are dropped and counted.
const QUEUE: usize = 2048;

/// One server's traces.
pub struct Tracer {
    per_million: u32,
    queue: Sender<Finished>,
    lost: Counter,
    figures: Arc<export::Figures>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Tracer {
    /// Starts the task that sends spans; nothing is connected before there is one.
    pub fn start(config: Config) -> Arc<Self> {
        let (queue, spans) = mpsc::channel(QUEUE);
        let (figures, stop) = (Arc::<export::Figures>::default(), CancellationToken::new());
        let exporter = export::Exporter::new(config.endpoint, figures.clone());
        let task = tokio::spawn(exporter.run(spans, stop.clone()));
        Arc::new(Self {
            per_million: config.per_million,
            queue,
            lost: Counter::default(),
            figures,
            stop,
            task: Mutex::new(Some(task)),
        })
    }

    /// The span of a request that is to be traced, else `None`. `trusted` clients decide by their header `parent`.
    /// `describe` gives the span's name and attributes.
    pub fn begin(
        self: &Arc<Self>,
        parent: Option<Context>,
        trusted: bool,
        describe: impl FnOnce() -> (String, Attributes),
    ) -> Option<Span> {
        let own = parent.filter(|_| trusted);
        let trace = own.map_or_else(rand::random, |parent| parent.trace);
        let sampled = own.map_or_else(|| self.chooses(trace), |parent| parent.sampled);
        if !sampled {
            return None;
        }
        let (name, attributes) = describe();
        Some(Span {
            tracer: self.clone(),
            context: Context { trace, span: rand::random(), sampled },
            parent: own.map(|parent| parent.span),
            link: parent.filter(|_| !trusted),
            name,
            attributes,
        })
    }

    /// By the trace's own id, as OpenTelemetry's ratio sampler: all who are asked about a trace say the same.
    fn chooses(&self, trace: [u8; 16]) -> bool {
        let number = trace[8..].iter().fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
        number * 1_000_000 < u128::from(self.per_million) << 64
    }

    fn send(&self, span: Finished) {
        if self.queue.try_send(span).is_err() {
            self.lost.add(1);
        }
    }

    /// Sends what is left, and waits for it.
    pub async fn close(&self) {
        self.stop.cancel();
        let task = self.task.lock().take();
        if let Some(task) = task
            && task.await.is_err()
        {
            tracing::error!("the task that sends traces panicked");
        }
    }

    /// Appends the figures to a page.
    pub fn render(&self, text: &mut Text) {
        let name = "coracle_trace_requests_total";
        text.head(name, "Traced requests by what became of their spans.", "counter");
        let figures = [
            ("dropped", self.lost.get()),
            ("failed", self.figures.failed.get()),
            ("sent", self.figures.sent.get()),
        ];
        for (outcome, count) in figures {
            text.sample(name, &[("outcome", outcome)], count);
        }
    }
}

#[cfg(test)]
mod tests;
