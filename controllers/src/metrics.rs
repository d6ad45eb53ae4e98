//! What the controllers count, under upstream's names.

pub type Metrics = coracle_metrics::Metrics<Metric>;

/// Seconds from when a pod had to go until it was deleted; upstream's, 5 ms to 4 minutes.
const DELETION_DELAYS: coracle_metrics::Buckets =
    &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0];
/// Slices changed in one look; upstream leaves the client library's own bounds.
const CHANGED_SLICES: coracle_metrics::Buckets =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

coracle_metrics::metric_families! { "";
    JobSyncs = counter "job_controller_job_syncs_total" ["completion_mode", "result", "action"],
        "Looks at a Job, by what was done.";
    JobSyncDuration = histogram(0.004, 2.0, 15) "job_controller_job_sync_duration_seconds" ["completion_mode", "result", "action"],
        "Time of a look at a Job.";
    JobsFinished = counter "job_controller_jobs_finished_total" ["completion_mode", "result", "reason"],
        "Jobs that have ended.";
    JobPodsFinished = counter "job_controller_job_pods_finished_total" ["completion_mode", "result"],
        "Pods of Jobs whose end has been counted.";
    JobsByExternal = counter "job_controller_jobs_by_external_controller_total" ["controller_name"],
        "Jobs that name somebody else who runs them.";
    JobPodFailuresByPolicy = counter "job_controller_pod_failures_handled_by_failure_policy_total" ["action"],
        "Failed pods of Jobs that a rule of podFailurePolicy spoke of, by its action.";
    JobTerminatedPods = counter "job_controller_terminated_pods_tracking_finalizer_total" ["event"],
        "Ended pods that got, or lost, the finalizer batch.kubernetes.io/job-tracking.";
    JobFinishedIndexes = counter "job_controller_job_finished_indexes_total" ["status", "backoffLimit"],
        "Indexes of Jobs that are over, by how failures are limited.";
    JobPodsCreation = counter "job_controller_job_pods_creation_total" ["reason", "status"],
        "Pods that Jobs made, or could not make, by what for.";
    JobStaleSkips = counter "job_controller_stale_sync_skips_total" ["group", "resource"],
        "Looks at a Job put off because what is known of it is older than what was written.";
    JobDeletion = histogram(0.1, 2.0, 14) "ttl_after_finished_controller_job_deletion_duration_seconds" [],
        "Time from when a Job was due to go until it was deleted.";
    JobCreationSkew = histogram(1.0, 2.0, 10) "cronjob_controller_job_creation_skew_duration_seconds" [],
        "Time from when a Job of a CronJob was due until it was made.";
    NodeEvictions = counter "node_collector_evictions_total" ["zone"],
        "Nodes that were told to give up their pods because they were down.";
    ZoneSize = gauge "node_collector_zone_size" ["zone"],
        "Nodes of the zone.";
    ZoneHealth = gauge "node_collector_zone_health" ["zone"],
        "Percentage of the zone's nodes that are up.";
    ZoneUnhealthy = gauge "node_collector_unhealthy_nodes_in_zone" ["zone"],
        "Nodes of the zone that are not Ready.";
    NodeHealthUpdate = histogram(0.001, 4.0, 8) "node_collector_update_node_health_duration_seconds" [],
        "Time of a look at one node's health.";
    PodGcDeletions = counter "pod_gc_collector_force_delete_pods_total" ["namespace", "reason"],
        "Pods deleted by force, by why: terminated, orphaned, out-of-service, unscheduled.";
    PodGcErrors = counter "pod_gc_collector_force_delete_pod_errors_total" ["namespace", "reason"],
        "Pods that could not be deleted by force.";
    TaintEvictions = counter "taint_eviction_controller_pod_deletions_total" [],
        "Pods deleted for NoExecute taints of their nodes.";
    TaintEvictionDelay = histogram{DELETION_DELAYS} "taint_eviction_controller_pod_deletion_duration_seconds" [],
        "Time from when a pod had to go for a taint until it was deleted.";
    DeviceEvictions = counter "device_taint_eviction_controller_pod_deletions_total" [],
        "Pods deleted for NoExecute taints of their devices.";
    DeviceEvictionDelay = histogram{DELETION_DELAYS} "device_taint_eviction_controller_pod_deletion_duration_seconds" [],
        "Time from when a pod had to go for a device's taint until it was deleted.";
    EphemeralCreates = counter "ephemeral_volume_controller_create_total" [],
        "Claims asked for on behalf of pods.";
    EphemeralFailures = counter "ephemeral_volume_controller_create_failures_total" [],
        "Claims of pods that could not be made.";
    ClaimCreates = counter "resourceclaim_controller_creates_total" ["status", "admin_access"],
        "ResourceClaims asked for by template.";
    Claims = gauge "resourceclaim_controller_resource_claims" ["allocated", "admin_access", "source"],
        "ResourceClaims by whether they are allocated, may administer, and what made them.";
    RootCaSyncs = counter "root_ca_cert_publisher_sync_total" ["code"],
        "Looks at a namespace's ConfigMap of the root CA, by the answer's code.";
    RootCaSyncDuration = histogram(0.001, 2.0, 15) "root_ca_cert_publisher_sync_duration_seconds" ["code"],
        "Time of a look at a namespace's ConfigMap of the root CA.";
    ScalerLooks = counter "horizontal_pod_autoscaler_controller_reconciliations_total" ["action", "error"],
        "Looks at a HorizontalPodAutoscaler.";
    ScalerLookDuration = histogram(0.001, 2.0, 16) "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds"
        ["action", "error"], "Time of a look at a HorizontalPodAutoscaler.";
    ScalerMetrics = counter "horizontal_pod_autoscaler_controller_metric_computation_total"
        ["action", "error", "metric_type"], "Metrics of HorizontalPodAutoscalers that were judged.";
    ScalerMetricDuration = histogram(0.001, 2.0, 15) "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds"
        ["action", "error", "metric_type"], "Time to judge one metric.";
    Scalers = gauge "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers" [],
        "HorizontalPodAutoscalers.";
    ScalerDesired = gauge "horizontal_pod_autoscaler_controller_desired_replicas" ["namespace", "hpa_name"],
        "Replicas that a HorizontalPodAutoscaler wants.";
    SlicesAdded = histogram(2.0, 2.0, 15) "endpoint_slice_controller_endpoints_added_per_sync" [],
        "Endpoints that a look at a Service added.";
    SlicesRemoved = histogram(2.0, 2.0, 15) "endpoint_slice_controller_endpoints_removed_per_sync" [],
        "Endpoints that a look at a Service removed.";
    SlicesEndpoints = gauge "endpoint_slice_controller_endpoints_desired" [],
        "Endpoints of all Services.";
    SlicesNumber = gauge "endpoint_slice_controller_num_endpoint_slices" [],
        "EndpointSlices of all Services.";
    SlicesDesired = gauge "endpoint_slice_controller_desired_endpoint_slices" [],
        "EndpointSlices that there would be if all were full.";
    SlicesChanges = counter "endpoint_slice_controller_changes" ["operation"],
        "EndpointSlices written or deleted.";
    SlicesChanged = histogram{CHANGED_SLICES} "endpoint_slice_controller_endpointslices_changed_per_sync"
        ["topology", "traffic_distribution"], "EndpointSlices that a look at a Service changed.";
    SlicesSyncs = counter "endpoint_slice_controller_syncs" ["result"],
        "Looks at a Service for its EndpointSlices.";
    SlicesDistributions = gauge "endpoint_slice_controller_services_count_by_traffic_distribution" ["traffic_distribution"],
        "Services by their trafficDistribution.";
    MirrorAdded = histogram(2.0, 2.0, 15) "endpoint_slice_mirroring_controller_endpoints_added_per_sync" [],
        "Endpoints that a look at mirrored Endpoints added.";
    MirrorUpdated = histogram(2.0, 2.0, 15) "endpoint_slice_mirroring_controller_endpoints_updated_per_sync" [],
        "Endpoints that a look at mirrored Endpoints changed.";
    MirrorRemoved = histogram(2.0, 2.0, 15) "endpoint_slice_mirroring_controller_endpoints_removed_per_sync" [],
        "Endpoints that a look at mirrored Endpoints removed.";
    MirrorSkipped = histogram(2.0, 2.0, 15) "endpoint_slice_mirroring_controller_addresses_skipped_per_sync" [],
        "Addresses that were not mirrored.";
    MirrorDuration = histogram(0.001, 2.0, 15) "endpoint_slice_mirroring_controller_endpoints_sync_duration" [],
        "Seconds of a look at mirrored Endpoints.";
    MirrorEndpoints = gauge "endpoint_slice_mirroring_controller_endpoints_desired" [],
        "Mirrored endpoints.";
    MirrorNumber = gauge "endpoint_slice_mirroring_controller_num_endpoint_slices" [],
        "EndpointSlices that mirror Endpoints.";
    MirrorDesired = gauge "endpoint_slice_mirroring_controller_desired_endpoint_slices" [],
        "EndpointSlices that would mirror Endpoints if all were full.";
    MirrorChanges = counter "endpoint_slice_mirroring_controller_changes" ["operation"],
        "EndpointSlices of Endpoints written or deleted.";
}
