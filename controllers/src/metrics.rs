//! What the controllers count, under upstream's names.

pub type Metrics = coracle_metrics::Metrics<Metric>;

coracle_metrics::metric_families! { "";
    JobSyncs = counter "job_controller_job_syncs_total" ["completion_mode", "result", "action"],
        "Looks at a Job, by what was done.";
    JobSyncDuration = histogram(0.004, 2.0, 15) "job_controller_job_sync_duration_seconds" ["completion_mode", "result", "action"],
        "Time of a look at a Job.";
    JobsFinished = counter "job_controller_jobs_finished_total" ["completion_mode", "result", "reason"],
        "Jobs that have ended.";
    JobPodsFinished = counter "job_controller_job_pods_finished_total" ["completion_mode", "result"],
        "Pods of Jobs whose end has been counted.";
    JobCreationSkew = histogram(1.0, 2.0, 10) "cronjob_controller_job_creation_skew_duration_seconds" [],
        "Time from when a Job of a CronJob was due until it was made.";
    NodeEvictions = counter "node_collector_evictions_total" ["zone"],
        "Nodes that were told to give up their pods because they were down.";
}
