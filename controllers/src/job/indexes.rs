//! Sets of completion indexes, as a Job's status writes them: `1,3-5,7`.

use std::collections::BTreeSet;
use std::fmt;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(BTreeSet<i32>);

impl Indexes {
    /// Reads the text; what is not an index of a Job of so many completions is left out.
    pub fn parse(text: &str, completions: i32) -> Self {
        let mut all = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.trim().parse::<i32>(), last.trim().parse::<i32>()) else {
                continue;
            };
            all.extend(first.max(0)..=last.min(completions - 1));
        }
        Self(all)
    }

    pub fn contains(&self, index: i32) -> bool {
        self.0.contains(&index)
    }

    pub fn insert(&mut self, index: i32) {
        self.0.insert(index);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many of `other` are in here.
    pub fn common(&self, other: &Self) -> usize {
        self.0.intersection(&other.0).count()
    }

    fn runs(&self) -> Vec<(i32, i32)> {
        let mut runs: Vec<(i32, i32)> = Vec::new();
        for index in &self.0 {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == *index => *last = *index,
                _ => runs.push((*index, *index)),
            }
        }
        runs
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (first, last)) in self.runs().into_iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for (text, shown, count) in
            [("", "", 0), ("1,3-5,7", "1,3-5,7", 5), ("0,1", "0,1", 2), ("5,0-2,x,9-20", "0-2,5,9", 5)]
        {
            let indexes = Indexes::parse(text, 10);
            assert_eq!((indexes.to_string().as_str(), indexes.len()), (shown, count), "{text}");
        }
    }
}
