//! Devices, CPUs and memory that pods have.

use super::Page;
use crate::tallies::{self, FAMILIES};

pub(super) fn write(page: &mut Page) {
    let all = tallies::all();
    for (tally, name, kind, label, help) in FAMILIES {
        page.family(name, kind, help);
        for ((_, value), count) in all.iter().filter(|((of, _), _)| *of == tally) {
            let labels: Vec<(&str, &str)> = label.iter().map(|label| (*label, value.as_str())).collect();
            page.value(name, &labels, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tallies::Tally;

    #[test]
    fn every_family_shows_what_was_counted() {
        for (tally, _, _, label, _) in FAMILIES {
            let label = if label.is_some() { "test" } else { "" };
            tallies::count(tally, label);
        }
        tallies::set(Tally::CpuPerNode, "test", 7);
        let mut page = Page::default();
        write(&mut page);
        for (_, name, _, label, _) in FAMILIES {
            let line = match label {
                Some(label) => format!("\n{name}{{{label}=\"test\"}} "),
                None => format!("\n{name} "),
            };
            assert!(page.0.contains(&line), "{line} in\n{}", page.0);
        }
        assert!(page.0.contains("allocation_per_numa{numa_node=\"test\"} 7\n"), "{}", page.0);
    }
}
