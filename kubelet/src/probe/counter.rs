//! When a row of answers becomes a verdict.

/// Counts equal answers in a row and changes its verdict at the thresholds.
#[derive(Clone, Debug)]
pub struct Counter {
    success_threshold: u32,
    failure_threshold: u32,
    last: Option<bool>,
    row: u32,
    verdict: Option<bool>,
}

impl Counter {
    /// Thresholds below one count as one.
    pub fn new(success_threshold: u32, failure_threshold: u32, verdict: Option<bool>) -> Self {
        Self {
            success_threshold: success_threshold.max(1),
            failure_threshold: failure_threshold.max(1),
            last: None,
            row: 0,
            verdict,
        }
    }

    /// Takes one answer; returns the verdict if it changed.
    pub fn record(&mut self, success: bool) -> Option<bool> {
        if self.last == Some(success) {
            self.row = self.row.saturating_add(1);
        } else {
            self.last = Some(success);
            self.row = 1;
        }
        let threshold = if success { self.success_threshold } else { self.failure_threshold };
        if self.row < threshold || self.verdict == Some(success) {
            return None;
        }
        self.verdict = Some(success);
        Some(success)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_change_at_thresholds() {
        let mut counter = Counter::new(2, 3, Some(false));
        let answers = [true, false, true, true, true, false, false, true, false, false, false, false];
        let verdicts: Vec<_> = answers.iter().map(|a| counter.record(*a)).collect();
        let mut expected = vec![None; 12];
        expected[3] = Some(true);
        expected[10] = Some(false);
        assert_eq!(verdicts, expected);
    }
}
