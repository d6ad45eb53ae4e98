//! What the scheduler counts, under upstream's names. It knows no server: whoever serves metrics lends a page.

pub mod resources;

pub type Metrics = coracle_metrics::Metrics<Metric>;

coracle_metrics::metric_families! { "scheduler_";
    ScheduleAttempts = counter "schedule_attempts_total" ["result", "profile"],
        "Attempts to schedule a pod, by what came of them.";
    AttemptDuration = histogram(0.001, 2.0, 15) "scheduling_attempt_duration_seconds" ["result", "profile"],
        "Time of an attempt, decision and binding.";
    AlgorithmDuration = histogram(0.001, 2.0, 15) "scheduling_algorithm_duration_seconds" [],
        "Time of a decision.";
    PreemptionVictims = histogram(1.0, 2.0, 7) "preemption_victims" [],
        "Pods taken away for one other.";
    PreemptionAttempts = counter "preemption_attempts_total" [],
        "Attempts to take pods away.";
    PendingPods = gauge "pending_pods" ["queue"],
        "Pods without a node, by the queue they wait in.";
    SliDuration = histogram(0.01, 2.0, 20) "pod_scheduling_sli_duration_seconds" ["attempts"],
        "Time from a pod's coming into the queue to its node.";
    Attempts = histogram(1.0, 2.0, 5) "pod_scheduling_attempts" [],
        "Attempts until a pod got its node.";
    ExtensionPoint = histogram(0.0001, 2.0, 12) "framework_extension_point_duration_seconds" ["extension_point", "status", "profile"],
        "Time of all plugins of an extension point.";
    PluginExecution = histogram(0.00001, 1.5, 20) "plugin_execution_duration_seconds" ["plugin", "extension_point", "status"],
        "Time of one plugin at one extension point, of every tenth pod.";
    PluginEvaluation = counter "plugin_evaluation_total" ["plugin", "extension_point", "profile"],
        "Pods that a plugin was asked about at an extension point.";
    PreemptionDuration = histogram(0.001, 2.0, 15) "preemption_goroutines_duration_seconds" ["result"],
        "Time until the victims of a pod were told.";
    PreemptionExecutions = counter "preemption_goroutines_execution_total" ["result"],
        "Pods whose victims were told, by what came of it.";
    IncomingPods = counter "queue_incoming_pods_total" ["queue", "event"],
        "Pods that came into a queue, by the event that brought them there.";
    AfterFlush = counter "pod_scheduled_after_flush_total" [],
        "Pods that got a node when they were tried because they had waited for too long.";
    Goroutines = gauge "goroutines" ["operation"],
        "Tasks at work beside the scheduling cycle.";
    PermitWait = histogram(0.001, 2.0, 15) "permit_wait_duration_seconds" ["result"],
        "Time of waiting for permission.";
    CacheSize = gauge "cache_size" ["type"],
        "Nodes, pods, and assumed pods that the scheduler knows.";
    UnschedulablePods = gauge "unschedulable_pods" ["plugin", "profile"],
        "Pods that wait, by the plugins that refused them.";
}
