//! What the server counts, under CoreDNS' names.

/// The server's name in labels: CoreDNS has one for each of its ports.
pub const SERVER: &str = "dns://:53";

pub type Metrics = coracle_metrics::Metrics<Metric>;

coracle_metrics::metric_families! { "coredns_";
    Requests = counter "dns_requests_total" ["server", "zone", "view", "proto", "family", "type"],
        "Questions, by the zone of the server block that they came to.";
    Responses = counter "dns_responses_total" ["server", "zone", "view", "rcode", "plugin"],
        "Answers, by their code and by what answered.";
    Durations = histogram(0.00025, 2.0, 16) "dns_request_duration_seconds" ["server", "zone", "view"],
        "Time of an answer.";
    CacheHits = counter "cache_hits_total" ["server", "type", "zones", "view"], "Answers that were known.";
    CacheMisses = counter "cache_misses_total" ["server", "zones", "view"], "Questions whose answer was not.";
    CacheStale = counter "cache_served_stale_total" ["server", "zones", "view"],
        "Answers that were given beyond their time.";
    ForwardDurations = histogram(0.00025, 2.0, 16) "proxy_request_duration_seconds" ["proxy_name", "to", "rcode"],
        "Time that a server outside took.";
    ForwardRejects = counter "forward_max_concurrent_rejects_total" [],
        "Questions that were refused because too many were asked outside.";
    ReloadFailed = counter "reload_failed_total" [], "Configurations that were not taken in.";
}
