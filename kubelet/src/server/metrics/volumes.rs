//! What claims' volumes hold.

use crate::volume_stats::Share;
use coracle_metrics::Text;

/// Upstream's families, each with the field of a volume's statistics.
const FAMILIES: [(&str, &str, &str); 6] = [
    ("kubelet_volume_stats_capacity_bytes", "capacityBytes", "Capacity in bytes of the volume"),
    ("kubelet_volume_stats_available_bytes", "availableBytes", "Number of available bytes in the volume"),
    ("kubelet_volume_stats_used_bytes", "usedBytes", "Number of used bytes in the volume"),
    ("kubelet_volume_stats_inodes", "inodes", "Maximum number of inodes in the volume"),
    ("kubelet_volume_stats_inodes_free", "inodesFree", "Number of free inodes in the volume"),
    ("kubelet_volume_stats_inodes_used", "inodesUsed", "Number of used inodes in the volume"),
];

const ABNORMAL: &str = "kubelet_volume_stats_health_status_abnormal";

/// A claim that several pods mount is told once.
pub(super) fn write(page: &mut Text, shares: &[Share]) {
    let mut claims: Vec<(&str, &str, &serde_json::Value)> = shares
        .iter()
        .filter_map(|share| {
            let claim = share.entry.get("pvcRef")?;
            Some((claim["namespace"].as_str()?, claim["name"].as_str()?, &share.entry))
        })
        .collect();
    claims.sort_by_key(|(namespace, name, _)| (*namespace, *name));
    claims.dedup_by_key(|(namespace, name, _)| (*namespace, *name));
    for (family, field, help) in FAMILIES {
        page.head(family, help, "gauge");
        for (namespace, claim, entry) in &claims {
            if let Some(value) = entry[field].as_u64() {
                let labels = [("namespace", *namespace), ("persistentvolumeclaim", *claim)];
                page.sample(family, &labels, value);
            }
        }
    }
    page.head(ABNORMAL, "Abnormal volume health status. The count is either 1 or 0", "gauge");
    for (namespace, claim, entry) in &claims {
        if let Some(abnormal) = entry["volumeHealthStats"]["abnormal"].as_bool() {
            let labels = [("namespace", *namespace), ("persistentvolumeclaim", *claim)];
            page.sample(ABNORMAL, &labels, u8::from(abnormal));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume_stats::Files;
    use serde_json::json;

    #[test]
    fn claims_are_told_once_and_other_volumes_not() {
        let share = |entry: serde_json::Value| Share {
            name: "v".to_owned(),
            entry,
            files: Files::default(),
            ephemeral: false,
        };
        let claim =
            json!({ "capacityBytes": 10, "usedBytes": 4, "pvcRef": { "name": "data", "namespace": "shop" } });
        let mut page = Text::default();
        write(&mut page, &[share(claim.clone()), share(claim), share(json!({ "usedBytes": 7 }))]);
        let line = "kubelet_volume_stats_used_bytes{namespace=\"shop\",persistentvolumeclaim=\"data\"} 4\n";
        let shown = page.finish();
        assert_eq!(shown.matches(line).count(), 1, "{shown}");
        assert!(!shown.contains("} 7"), "{shown}");
    }
}
