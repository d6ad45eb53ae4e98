//! The Accept header, read as upstream reads it: clauses by falling quality, the more specific first among equals.

/// One clause of the header.
#[derive(Clone, Debug, PartialEq)]
pub struct Clause<'a> {
    pub kind: &'a str,
    pub subtype: &'a str,
    pub quality: f32,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';');
        let range = parts.next()?.trim();
        let (kind, subtype) = match range.split_once('/') {
            Some((kind, subtype)) if !subtype.contains('/') => (kind.trim(), subtype.trim()),
            None if range == "*" => ("*", "*"),
            _ => return None,
        };
        let mut clause = Self { kind, subtype, quality: 1.0, parameters: Vec::new() };
        for (name, value) in parts.filter_map(|p| p.split_once('=')) {
            match name.trim() {
                "q" => clause.quality = value.trim().parse().unwrap_or(0.0),
                name => clause.parameters.push((name, value.trim())),
            }
        }
        Some(clause)
    }

    /// The last value of a parameter; empty when there is none.
    pub fn parameter(&self, name: &str) -> &'a str {
        self.parameters.iter().rev().find(|(n, _)| *n == name).map_or("", |(_, v)| v)
    }

    pub fn covers(&self, media_type: &str) -> bool {
        let Some((kind, subtype)) = media_type.split_once('/') else { return false };
        match (self.kind, self.subtype) {
            ("*", "*") => true,
            (k, "*") => k == kind,
            (k, s) => k == kind && s == subtype,
        }
    }

    fn comes_before(&self, other: &Self) -> bool {
        self.quality > other.quality
            || (self.kind != "*" && other.kind == "*")
            || (self.subtype != "*" && other.subtype == "*")
    }
}

/// The clauses in the order in which they are tried.
pub fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut sorted: Vec<Clause<'_>> = Vec::new();
    // The order is none that a sort could rely on (a wildcard of higher quality stands behind), so the way of
    // inserting matters.
    for clause in header.split(',').filter_map(Clause::parse) {
        let mut at = sorted.len();
        while at > 0 && clause.comes_before(&sorted[at - 1]) {
            at -= 1;
        }
        sorted.insert(at, clause);
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order() {
        let order = |header| clauses(header).iter().map(|c| c.subtype.to_owned()).collect::<Vec<_>>();
        assert_eq!(order("application/json;q=0.5, application/yaml"), ["yaml", "json"]);
        assert_eq!(order("*/*, application/json;q=0.1"), ["json", "*"]);
        assert_eq!(order("application/json, application/yaml"), ["json", "yaml"]);
        assert_eq!(order("junk, a/b/c, *"), ["*"]);
        assert!(order("").is_empty());
    }

    #[test]
    fn parameters() {
        let parsed = clauses("application/json;as=Table;g=meta.k8s.io ; v = v1;q=x");
        assert_eq!((parsed[0].parameter("as"), parsed[0].parameter("v")), ("Table", "v1"));
        assert_eq!(parsed[0].quality, 0.0);
        assert!(parsed[0].covers("application/json") && !parsed[0].covers("application/yaml"));
    }
}
