//! How long things took.

use super::Page;
use crate::measured::{self, Family, Histogram};

pub(super) fn write(page: &mut Page) {
    let all = measured::all();
    for family in Family::ALL {
        page.family(family.name(), "histogram", family.help());
        for ((_, operation), histogram) in all.iter().filter(|((of, _), _)| *of == family) {
            histogram_of(page, family, operation, histogram);
        }
    }
    let calls = "kubelet_runtime_operations_total";
    page.family(calls, "counter", "Cumulative number of calls to the runtime");
    for ((_, operation), histogram) in all.iter().filter(|((of, _), _)| *of == Family::Runtime) {
        page.value(calls, &[("operation_type", operation.as_ref())], histogram.count);
    }
    let requests = "kubelet_http_requests_total";
    page.family(requests, "counter", "Cumulative number of requests that were answered");
    for ((family, values), histogram) in all.iter().filter(|((of, _), _)| *of == Family::Http) {
        let labels: Vec<(&str, &str)> = family.labels().iter().copied().zip(values.split(',')).collect();
        page.value(requests, &labels, histogram.count);
    }
}

fn histogram_of(page: &mut Page, family: Family, operation: &str, histogram: &Histogram) {
    let name = family.name();
    let own: Vec<(&str, &str)> = family.labels().iter().copied().zip(operation.split(',')).collect();
    let bounds = family.bounds().iter().map(f64::to_string).chain(["+Inf".to_owned()]);
    for (bound, count) in bounds.zip(histogram.counts.iter().chain([&histogram.count])) {
        let labels: Vec<(&str, &str)> = own.iter().copied().chain([("le", bound.as_str())]).collect();
        page.value(&format!("{name}_bucket"), &labels, count);
    }
    page.value(&format!("{name}_sum"), &own, histogram.sum);
    page.value(&format!("{name}_count"), &own, histogram.count);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_took_long_is_in_the_high_buckets() {
        measured::took(Family::Runtime, "test_call", Duration::from_millis(100));
        measured::took(Family::Runtime, "test_call", Duration::from_secs(1000));
        let mut page = Page::default();
        write(&mut page);
        let name = "kubelet_runtime_operations_duration_seconds";
        for line in [
            format!("{name}_bucket{{operation_type=\"test_call\",le=\"0.078125\"}} 0"),
            format!("{name}_bucket{{operation_type=\"test_call\",le=\"0.1953125\"}} 1"),
            format!("{name}_bucket{{operation_type=\"test_call\",le=\"+Inf\"}} 2"),
            format!("{name}_sum{{operation_type=\"test_call\"}} 1000.1"),
            format!("{name}_count{{operation_type=\"test_call\"}} 2"),
            "kubelet_runtime_operations_total{operation_type=\"test_call\"} 2".to_owned(),
        ] {
            assert!(page.0.contains(&format!("{line}\n")), "{line} in\n{}", page.0);
        }
        for family in Family::ALL {
            assert!(family.bounds().is_sorted(), "{family:?}");
            assert!(page.0.contains(&format!("# TYPE {} histogram", family.name())));
        }
    }
}
