//! Reading the kubelets, when somebody asks and no oftener than needed.

use super::sample::{Sample, Usage};
use crate::connect::KubeletClient;
use coracle_api::ApiError;
use coracle_requests::ObjectReader;
use futures::StreamExt;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Answers within this time are the same; metrics-server reads every 15 s.
const FRESH_PERIOD: Duration = Duration::from_secs(10);
/// A reading that is older makes no useful rate: two are taken then, [`MIN_SAMPLE_INTERVAL`] apart.
const STALE_AGE: Duration = Duration::from_secs(90);
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// A kubelet that has not answered by then is left out.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);
/// File systems and volumes take their time to be counted, and nobody asks here for them.
const SUMMARY: &str = "/stats/summary?only_cpu_and_memory=true";
/// Kubelets that are read at a time.
const AT_ONCE: usize = 16;

struct Known {
    sample: Sample,
    usage: Arc<Usage>,
    read: Instant,
}

/// Locked while its kubelet is read, so that many who ask at once cause one reading.
type Slot = Arc<tokio::sync::Mutex<Option<Known>>>;

/// The last reading of each node that was asked for. One for a server.
#[derive(Default)]
pub struct Collector(Mutex<HashMap<String, Slot>>);

impl Collector {
    /// The use of these nodes and of their pods, without those that cannot be read.
    pub async fn usage(
        &self,
        nodes: BTreeSet<String>,
        reader: &dyn ObjectReader,
        kubelets: &KubeletClient,
    ) -> BTreeMap<String, Arc<Usage>> {
        self.forget(reader);
        let read = |node: String| async move {
            let usage = self.of_node(&node, reader, kubelets).await;
            usage
                .inspect_err(|error| tracing::debug!(node, error = error.message, "no statistics of a node"))
                .ok()
                .map(|usage| (node, usage))
        };
        let readings = futures::stream::iter(nodes.into_iter().map(read));
        readings.buffer_unordered(AT_ONCE).filter_map(|found| async { found }).collect().await
    }

    /// Nodes that have gone take their readings with them.
    fn forget(&self, reader: &dyn ObjectReader) {
        self.0.lock().retain(|node, _| reader.get("nodes.", "", node).is_some());
    }

    async fn of_node(
        &self,
        node: &str,
        reader: &dyn ObjectReader,
        kubelets: &KubeletClient,
    ) -> Result<Arc<Usage>, ApiError> {
        let slot = self.0.lock().entry(node.to_owned()).or_default().clone();
        let mut slot = slot.lock().await;
        let older = match &*slot {
            Some(known) if known.read.elapsed() < FRESH_PERIOD => return Ok(known.usage.clone()),
            Some(known) if known.read.elapsed() < STALE_AGE => known.sample.clone(),
            _ => {
                let first = sample(node, reader, kubelets).await?;
                tokio::time::sleep(MIN_SAMPLE_INTERVAL).await;
                first
            }
        };
        let mut newest = sample(node, reader, kubelets).await?;
        let mut usage = Usage::between(&older, &newest);
        if usage.lacks(&newest) {
            // Pods that have started since: nobody should have to ask twice for them.
            tokio::time::sleep(MIN_SAMPLE_INTERVAL).await;
            let next = sample(node, reader, kubelets).await?;
            usage.complete(Usage::between(&newest, &next));
            newest = next;
        }
        let usage = Arc::new(usage);
        *slot = Some(Known { sample: newest, usage: usage.clone(), read: Instant::now() });
        Ok(usage)
    }
}

async fn sample(node: &str, reader: &dyn ObjectReader, kubelets: &KubeletClient) -> Result<Sample, ApiError> {
    let read = tokio::time::timeout(WAIT_TIMEOUT, kubelets.json(node, SUMMARY, reader)).await;
    let summary = read.map_err(|_| ApiError::unavailable("the kubelet did not answer in time"))??;
    Ok(Sample::of(&summary))
}
