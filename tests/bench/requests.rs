//! How many requests a server has answered, by its own account.

use crate::Error;
use crate::http::{Call, Target};

/// Totals since the server's start.
pub struct Requests {
    work: f64,
    events: f64,
}

impl Requests {
    pub async fn of(target: &Target) -> Result<Self, Error> {
        let page = target.connect().await?.call(Call::get("/metrics")).await?;
        Ok(Self::parse(&String::from_utf8_lossy(&page)))
    }

    /// Heartbeats and watches are not counted, nor the page itself; events are counted by themselves.
    fn parse(page: &str) -> Self {
        let mut totals = Self { work: 0.0, events: 0.0 };
        for line in page.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
            let Some((labels, value)) = line.rsplit_once(' ') else { continue };
            let value: f64 = value.parse().unwrap_or(0.0);
            // The name begins after a brace or a comma: `subresource` ends like `resource`.
            let is = |name: &str, value: &str| {
                ["{", ","].iter().any(|before| labels.contains(&format!("{before}{name}=\"{value}\"")))
            };
            if is("resource", "events") {
                totals.events += value;
            } else if !is("verb", "WATCH") && !is("resource", "leases") && !is("resource", "") {
                totals.work += value;
            }
        }
        totals
    }

    pub fn since(&self, before: &Self) -> Self {
        Self { work: self.work - before.work, events: self.events - before.events }
    }

    pub fn work(&self) -> f64 {
        self.work
    }

    pub fn events(&self) -> f64 {
        self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_watches_and_the_page_itself_are_no_work() {
        let line = |verb: &str, resource: &str, n: u32| {
            format!(
                "apiserver_request_total{{code=\"200\",resource=\"{resource}\",subresource=\"\",verb=\"{verb}\"}} {n}\n"
            )
        };
        let page = line("POST", "pods", 5)
            + &line("WATCH", "pods", 7)
            + &line("PATCH", "leases", 9)
            + &line("GET", "", 3)
            + &line("POST", "events", 4);
        let totals = Requests::parse(&page);
        assert_eq!((totals.work(), totals.events()), (5.0, 4.0));
    }
}
