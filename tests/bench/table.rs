//! Figures, and how they are shown: a Markdown table whose columns line up in a terminal too.

use crate::goals::{Bound, GOALS, Goal};

/// One line of the table.
pub enum Row {
    Figure {
        name: String,
        value: f64,
        unit: &'static str,
        n: usize,
    },
    /// Not measured, and why.
    Skipped {
        name: String,
        why: String,
    },
}

/// A figure, how often what it sums up was measured, and its unit.
pub fn figure(name: impl Into<String>, value: f64, unit: &'static str, n: usize) -> Row {
    Row::Figure { name: name.into(), value, unit, n }
}

pub fn skipped(name: impl Into<String>, why: impl Into<String>) -> Row {
    Row::Skipped { name: name.into(), why: why.into() }
}

/// With a comma between thousands and as many decimals as the size deserves.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        v if v.fract() == 0.0 || v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.find('.').map_or((text.as_str(), ""), |at| text.split_at(at));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 && grouped != "-" {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

fn goal_text(name: &str, value: f64) -> String {
    let Some(goal) = Goal::of(name) else { return String::new() };
    let bound = match goal.bound {
        Bound::AtMost(goal) => format!("<= {}", number(goal)),
        Bound::AtLeast(goal) => format!(">= {}", number(goal)),
    };
    match (goal.holds(value), goal.not_yet) {
        (true, _) => bound,
        (false, None) => format!("{bound} (missed)"),
        (false, Some(_)) => format!("{bound} (not yet)"),
    }
}

pub fn render(rows: &[Row]) -> String {
    let mut lines = vec![["figure", "value", "unit", "goal", "n"].map(str::to_owned)];
    for row in rows {
        lines.push(match row {
            Row::Figure { name, value, unit, n } => {
                [name.clone(), number(*value), (*unit).to_owned(), goal_text(name, *value), n.to_string()]
            }
            Row::Skipped { name, why } => {
                [name.clone(), "skipped".to_owned(), String::new(), why.clone(), String::new()]
            }
        });
    }
    let widths: [usize; 5] =
        std::array::from_fn(|c| lines.iter().map(|l| l[c].chars().count()).max().unwrap_or(0).max(3));
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        text += &format!(
            "| {:<a$} | {:>b$} | {:<c$} | {:<d$} | {:>e$} |\n",
            line[0],
            line[1],
            line[2],
            line[3],
            line[4],
            a = widths[0],
            b = widths[1],
            c = widths[2],
            d = widths[3],
            e = widths[4]
        );
        if index == 0 {
            let dashes = widths.map(|width| "-".repeat(width - 1));
            text += &format!(
                "| {}- | {}: | {}- | {}- | {}: |\n",
                dashes[0], dashes[1], dashes[2], dashes[3], dashes[4]
            );
        }
    }
    text
}

/// What is wrong with the figures, one line each: goals missed, and, where `all` ought to have been measured, goals
/// without a figure.
pub fn misses(rows: &[Row], all: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in rows {
        let Row::Figure { name, value, .. } = row else { continue };
        let missed = Goal::of(name).filter(|goal| !goal.holds(*value) && goal.not_yet.is_none());
        wrong
            .extend(missed.map(|_| format!("{name}: {} misses {}", number(*value), goal_text(name, *value))));
    }
    let measured = |wanted: &str| {
        rows.iter().any(|row| match row {
            Row::Figure { name, .. } => name == wanted,
            Row::Skipped { name, .. } => wanted.starts_with(name.as_str()),
        })
    };
    if all {
        let lost = GOALS.iter().filter(|goal| !measured(goal.name));
        wrong.extend(lost.map(|goal| format!("{}: has a goal and was not measured", goal.name)));
    }
    wrong
}

/// Why figures may miss their goals for now, one line each.
pub fn excuses(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for row in rows {
        let Row::Figure { name, value, .. } = row else { continue };
        let Some(goal) = Goal::of(name) else { continue };
        match goal.not_yet {
            Some(why) if !goal.holds(*value) => lines.push(format!("not yet: {name}: {why}")),
            Some(_) => lines.push(format!("reached: {name}: the mark in goals.rs can go")),
            None => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        let shown = [0.0, 0.123, 12.34, 1234.5, 1_234_567.0, -1234.0].map(number);
        assert_eq!(shown, ["0", "0.12", "12.3", "1,234", "1,234,567", "-1,234"]);
    }

    #[test]
    fn a_missed_goal_is_named_and_a_met_one_is_not() {
        let rows = [figure("idle memory", 41.0, "MiB", 1), figure("idle CPU", 0.1, "%", 1)];
        assert_eq!(misses(&rows, false), ["idle memory: 41 misses <= 40 (missed)"]);
        assert!(misses(&rows, true).len() > 1);
    }

    #[test]
    fn a_skipped_benchmark_excuses_its_figures() {
        let rows = [skipped("pod start", "no node")];
        assert!(misses(&rows, true).iter().all(|line| !line.starts_with("pod start")));
    }
}
