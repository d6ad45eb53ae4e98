//! Tables as kubectl prints them.

use jiff::SignedDuration;

/// Columns as wide as their widest cell, three blanks between them.
pub fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0) + 3;
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells: String = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.trim_end())
    };
    rows.iter().map(line).collect()
}

/// The largest unit that is whole, as kubectl shows ages of long ago.
pub fn left(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_three_blanks_apart() {
        assert_eq!(table(&[["a", "b", "c", "d", "e", "f"].map(str::to_owned)]), "a   b   c   d   e   f\n");
        let rows = [["long", "b"].map(str::to_owned), ["a", ""].map(str::to_owned)];
        assert_eq!(table(&rows), "long   b\na\n");
        assert_eq!(left(SignedDuration::from_hours(25)), "1d");
    }
}
