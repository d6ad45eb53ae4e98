//! What the controllers count, under upstream's names.

use coracle_client::metrics::families::{NONE, metric_families};

pub type Metrics = coracle_client::metrics::families::Metrics<Metric>;

metric_families! { "";
    JobSyncs = "job_controller_job_syncs_total", "counter", ["completion_mode", "result", "action"], NONE,
        "Looks at a Job, by what was done.";
    JobSyncDuration = "job_controller_job_sync_duration_seconds", "histogram",
        ["completion_mode", "result", "action"], (0.004, 2.0, 15), "Time of a look at a Job.";
    JobsFinished = "job_controller_jobs_finished_total", "counter", ["completion_mode", "result", "reason"], NONE,
        "Jobs that have ended.";
    JobPodsFinished = "job_controller_job_pods_finished_total", "counter", ["completion_mode", "result"], NONE,
        "Pods of Jobs whose end has been counted.";
    JobCreationSkew = "cronjob_controller_job_creation_skew_duration_seconds", "histogram", [], (1.0, 2.0, 10),
        "Time from when a Job of a CronJob was due until it was made.";
    NodeEvictions = "node_collector_evictions_total", "counter", ["zone"], NONE,
        "Nodes that were told to give up their pods because they were down.";
}
