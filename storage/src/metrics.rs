//! What the controllers of claims, volumes and attachments count, under upstream's names.

use crate::facts;
use coracle_client::{Delta, ObjectKey};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec};
use kube::ResourceExt;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub type Metrics = coracle_metrics::Metrics<Metric>;

coracle_metrics::metric_families! { "";
    BoundVolumes = gauge "pv_collector_bound_pv_count" ["storage_class"],
        "PersistentVolumes that are bound.";
    UnboundVolumes = gauge "pv_collector_unbound_pv_count" ["storage_class"],
        "PersistentVolumes that are not bound.";
    Volumes = gauge "pv_collector_total_pv_count" ["plugin_name", "volume_mode"],
        "PersistentVolumes.";
    BoundClaims = gauge "pv_collector_bound_pvc_count" ["namespace", "storage_class", "volume_attributes_class"],
        "PersistentVolumeClaims that are bound.";
    UnboundClaims = gauge "pv_collector_unbound_pvc_count" ["namespace", "storage_class", "volume_attributes_class"],
        "PersistentVolumeClaims that are not bound.";
    LateClasses = counter "retroactive_storageclass_total" [],
        "Claims without a class that got the default one after they were made.";
    LateClassErrors = counter "retroactive_storageclass_errors_total" [],
        "Claims without a class that could not be given the default one.";
    AttachedVolumes = gauge "attachdetach_controller_total_volumes" ["plugin_name", "state"],
        "Volumes that nodes shall have attached, and have.";
    VolumesInUse = gauge "storage_count_attachable_volumes_in_use" ["node", "volume_plugin"],
        "Attachable volumes that the pods of a node use.";
    ForcedDetaches = counter "attach_detach_controller_attachdetach_controller_forced_detaches" ["reason"],
        "Volumes that were detached although the node did not say that it gave them up: out-of-service, timeout.";
}

/// One gauge with its labels.
type Series = (Metric, Vec<String>);

fn add(metrics: &Metrics, (metric, labels): &Series, by: i64) {
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    metrics.count(*metric, &labels, by);
}

/// Begins gauges anew: the figures are kept over restarts of their controller, which counts all objects again.
fn begin(metrics: &Metrics, gauges: &[Metric]) {
    gauges.iter().for_each(|gauge| metrics.set_all(*gauge, std::iter::empty()));
}

/// Counts claims and volumes by what informers tell of them.
#[derive(Clone)]
pub struct Collector(Arc<Metrics>);

impl Collector {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        use Metric::{BoundClaims, BoundVolumes, UnboundClaims, UnboundVolumes, Volumes};
        begin(&metrics, &[BoundVolumes, UnboundVolumes, Volumes, BoundClaims, UnboundClaims]);
        Self(metrics)
    }

    pub fn claim(&self, delta: &Delta<PersistentVolumeClaim>) {
        self.change(&delta.old, &delta.new, |claim| vec![of_claim(claim)]);
    }

    pub fn volume(&self, delta: &Delta<PersistentVolume>) {
        self.change(&delta.old, &delta.new, |volume| of_volume(volume).to_vec());
    }

    fn change<K>(&self, old: &Option<Arc<K>>, new: &Option<Arc<K>>, of: impl Fn(&K) -> Vec<Series>) {
        let series = |object: &Option<Arc<K>>| object.as_deref().map(&of).unwrap_or_default();
        let (old, new) = (series(old), series(new));
        if old != new {
            old.iter().for_each(|series| add(&self.0, series, -1));
            new.iter().for_each(|series| add(&self.0, series, 1));
        }
    }
}

fn of_claim(claim: &PersistentVolumeClaim) -> Series {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let metric = if phase == Some("Bound") { Metric::BoundClaims } else { Metric::UnboundClaims };
    let attributes = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.clone());
    let labels = [claim.namespace(), Some(facts::class_of(claim).to_owned()), attributes];
    (metric, labels.map(Option::unwrap_or_default).to_vec())
}

fn of_volume(volume: &PersistentVolume) -> [Series; 2] {
    let bound = facts::phase(volume) == "Bound";
    let metric = if bound { Metric::BoundVolumes } else { Metric::UnboundVolumes };
    let spec = volume.spec.as_ref();
    let mode = spec.and_then(|spec| spec.volume_mode.clone()).unwrap_or_else(|| "Filesystem".to_owned());
    let plugin = spec.map_or_else(|| UNKNOWN.to_owned(), plugin_of);
    [(metric, vec![facts::class_of_volume(volume).to_owned()]), (Metric::Volumes, vec![plugin, mode])]
}

/// Upstream's word for a plugin that it does not have.
const UNKNOWN: &str = "N/A";

fn plugin_of(spec: &PersistentVolumeSpec) -> String {
    if let Some(csi) = &spec.csi {
        return plugin_of_driver(&csi.driver);
    }
    let name = match spec {
        PersistentVolumeSpec { host_path: Some(_), .. } => "kubernetes.io/host-path",
        PersistentVolumeSpec { local: Some(_), .. } => "kubernetes.io/local-volume",
        PersistentVolumeSpec { nfs: Some(_), .. } => "kubernetes.io/nfs",
        PersistentVolumeSpec { iscsi: Some(_), .. } => "kubernetes.io/iscsi",
        PersistentVolumeSpec { fc: Some(_), .. } => "kubernetes.io/fc",
        _ => UNKNOWN,
    };
    name.to_owned()
}

pub fn plugin_of_driver(driver: &str) -> String {
    format!("kubernetes.io/csi:{driver}")
}

/// How many volumes of each driver a node shall have attached, and has.
pub type ByDriver = BTreeMap<String, (i64, i64)>;

/// Counts attachments by node.
pub struct Attached {
    metrics: Arc<Metrics>,
    nodes: Mutex<HashMap<ObjectKey, ByDriver>>,
}

impl Attached {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        begin(&metrics, &[Metric::AttachedVolumes, Metric::VolumesInUse]);
        Self { metrics, nodes: Mutex::default() }
    }

    pub fn look_at(&self, node: &str, now: ByDriver) {
        let mut nodes = self.nodes.lock();
        let key = ObjectKey::new("", node);
        let before = match now.is_empty() {
            true => nodes.remove(&key),
            false => nodes.insert(key, now.clone()),
        };
        let before = before.unwrap_or_default();
        for driver in before.keys().chain(now.keys().filter(|driver| !before.contains_key(*driver))) {
            let count = |of: &ByDriver| of.get(driver).copied().unwrap_or_default();
            let ((wanted_before, there_before), (wanted, there)) = (count(&before), count(&now));
            let plugin = plugin_of_driver(driver);
            let of_state = |state: &str| (Metric::AttachedVolumes, vec![plugin.clone(), state.to_owned()]);
            add(&self.metrics, &of_state("desired_state_of_world"), wanted - wanted_before);
            add(&self.metrics, &of_state("actual_state_of_world"), there - there_before);
            let in_use = (Metric::VolumesInUse, vec![node.to_owned(), plugin.clone()]);
            add(&self.metrics, &in_use, wanted - wanted_before);
        }
    }

    pub fn forced(&self, reason: &str) {
        self.metrics.add(Metric::ForcedDetaches, &[reason], 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_metrics::Text;
    use serde_json::json;

    fn shown(metrics: &Metrics) -> Vec<String> {
        let mut page = Text::default();
        metrics.render(&mut page);
        page.finish().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn claims_and_volumes_are_counted_by_their_phase() {
        let metrics = Arc::<Metrics>::default();
        let collector = Collector::new(metrics.clone());
        let volume = |phase: &str| -> Option<Arc<PersistentVolume>> {
            let csi = json!({ "driver": "d.example.com", "volumeHandle": "h" });
            serde_json::from_value(json!({ "metadata": { "name": "v" },
                "spec": { "storageClassName": "fast", "csi": csi }, "status": { "phase": phase } }))
            .ok()
            .map(Arc::new)
        };
        collector.volume(&Delta { old: None, new: volume("Available") });
        collector.volume(&Delta { old: volume("Available"), new: volume("Bound") });
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": { "name": "c", "namespace": "n" }, "spec": { "storageClassName": "fast" } }))
        .unwrap();
        let claim = Some(Arc::new(claim));
        collector.claim(&Delta { old: None, new: claim.clone() });
        let expected = [
            r#"pv_collector_bound_pv_count{storage_class="fast"} 1"#,
            r#"pv_collector_total_pv_count{plugin_name="kubernetes.io/csi:d.example.com",volume_mode="Filesystem"} 1"#,
            r#"pv_collector_unbound_pvc_count{namespace="n",storage_class="fast",volume_attributes_class=""} 1"#,
        ];
        assert_eq!(shown(&metrics), expected);
        // Another run counts all again.
        Collector::new(metrics.clone()).claim(&Delta { old: None, new: claim });
        assert_eq!(shown(&metrics), expected[2..]);
    }

    #[test]
    fn attachments_are_counted_by_driver_and_node() {
        let metrics = Arc::<Metrics>::default();
        let attached = Attached::new(metrics.clone());
        let of = |counts: &[(&str, i64, i64)]| -> ByDriver {
            counts.iter().map(|(driver, wanted, there)| ((*driver).to_owned(), (*wanted, *there))).collect()
        };
        attached.look_at("a", of(&[("d", 2, 0)]));
        attached.look_at("b", of(&[("d", 1, 1)]));
        attached.look_at("a", of(&[("d", 1, 2)]));
        attached.look_at("b", ByDriver::new());
        assert_eq!(
            shown(&metrics),
            [
                r#"attachdetach_controller_total_volumes{plugin_name="kubernetes.io/csi:d",state="actual_state_of_world"} 2"#,
                r#"attachdetach_controller_total_volumes{plugin_name="kubernetes.io/csi:d",state="desired_state_of_world"} 1"#,
                r#"storage_count_attachable_volumes_in_use{node="a",volume_plugin="kubernetes.io/csi:d"} 1"#,
            ]
        );
    }
}
