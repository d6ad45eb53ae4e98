//! Figures of a page of metrics.

/// A page in Prometheus' text format.
#[derive(Default)]
pub struct Page(String);

/// One sample.
#[derive(Debug, PartialEq)]
pub struct Sample<'a> {
    labels: &'a str,
    pub value: f64,
}

impl<'a> Sample<'a> {
    pub fn label(&self, name: &str) -> &'a str {
        let begin = format!("{name}=\"");
        let fields = self.labels;
        let at = fields.match_indices(&begin).find(|(at, _)| *at == 0 || fields[..*at].ends_with(','));
        at.and_then(|(at, _)| fields[at + begin.len()..].split('"').next()).unwrap_or_default()
    }
}

impl Page {
    pub fn new(text: String) -> Self {
        Self(text)
    }

    pub fn samples<'a>(&'a self, metric: &'a str) -> impl Iterator<Item = Sample<'a>> + 'a {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(metric)?;
            let (labels, value) = match rest.strip_prefix('{') {
                Some(rest) => rest.rsplit_once("} ")?,
                None => ("", rest.strip_prefix(' ')?),
            };
            Some(Sample { labels, value: value.split(' ').next()?.parse().ok()? })
        })
    }

    pub fn value(&self, metric: &str) -> Option<f64> {
        self.samples(metric).next().map(|sample| sample.value)
    }
}

#[cfg(test)]
mod tests {
    use super::Page;

    #[test]
    fn samples_are_told_apart_by_name_and_labels() {
        let page = Page::new(
            "# HELP a b\na 1\na_b{x=\"1\",verb=\"GET\"} 2.5\na_b{x=\"2\",verb=\"\"} 3e2\n".to_owned(),
        );
        assert_eq!(page.value("a"), Some(1.0));
        let all: Vec<_> =
            page.samples("a_b").map(|sample| (sample.label("verb").to_owned(), sample.value)).collect();
        assert_eq!(all, [("GET".to_owned(), 2.5), (String::new(), 300.0)]);
        assert_eq!(page.value("c"), None);
    }
}
