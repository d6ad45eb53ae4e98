//! Every field of upstream's, one by one.

use super::config::Config;
use super::documents::Written;
use super::fields::{Becomes, FIELDS, becomes};
use serde_json::{Value, json};

/// The fields of KubeletConfiguration v1beta1 of Kubernetes 1.36, in the order of its type.
const UPSTREAM: &str = "
    enableServer staticPodPath podLogsDir syncFrequency fileCheckFrequency httpCheckFrequency staticPodURL
    staticPodURLHeader address port readOnlyPort tlsCertFile tlsPrivateKeyFile tlsCipherSuites tlsCurvePreferences
    tlsMinVersion rotateCertificates serverTLSBootstrap authentication authorization registryPullQPS registryBurst
    imagePullCredentialsVerificationPolicy preloadedImagesVerificationAllowlist eventRecordQPS eventBurst
    enableDebuggingHandlers enableContentionProfiling healthzPort healthzBindAddress oomScoreAdj clusterDomain clusterDNS
    streamingConnectionIdleTimeout nodeStatusUpdateFrequency nodeStatusReportFrequency nodeLeaseDurationSeconds
    imageMinimumGCAge imageMaximumGCAge imageGCHighThresholdPercent imageGCLowThresholdPercent volumeStatsAggPeriod
    kubeletCgroups systemCgroups cgroupRoot cgroupsPerQOS cgroupDriver cpuManagerPolicy singleProcessOOMKill
    cpuManagerPolicyOptions cpuManagerReconcilePeriod draManagerReconcilePeriod memoryManagerPolicy topologyManagerPolicy
    topologyManagerScope topologyManagerPolicyOptions qosReserved runtimeRequestTimeout hairpinMode maxPods podCIDR
    podPidsLimit resolvConf runOnce cpuCFSQuota cpuCFSQuotaPeriod nodeStatusMaxImages maxOpenFiles contentType kubeAPIQPS
    kubeAPIBurst serializeImagePulls maxParallelImagePulls evictionHard evictionSoft evictionSoftGracePeriod
    evictionPressureTransitionPeriod evictionMaxPodGracePeriod evictionMinimumReclaim mergeDefaultEvictionSettings
    podsPerCore enableControllerAttachDetach protectKernelDefaults makeIPTablesUtilChains iptablesMasqueradeBit
    iptablesDropBit featureGates failSwapOn memorySwap containerLogMaxSize containerLogMaxFiles containerLogMaxWorkers
    containerLogMonitorInterval configMapAndSecretChangeDetectionStrategy systemReserved kubeReserved reservedSystemCPUs
    showHiddenMetricsForVersion systemReservedCgroup kubeReservedCgroup enforceNodeAllocatable allowedUnsafeSysctls
    volumePluginDir providerID kernelMemcgNotification logging enableSystemLogHandler enableSystemLogQuery
    shutdownGracePeriod shutdownGracePeriodCriticalPods shutdownGracePeriodByPodPriority crashLoopBackOff reservedMemory
    enableProfilingHandler enableDebugFlagsHandler seccompDefault memoryThrottlingFactor memoryReservationPolicy
    registerWithTaints registerNode tracing localStorageCapacityIsolation containerRuntimeEndpoint imageServiceEndpoint
    failCgroupV1 userNamespaces";

/// Of every field that works a value that is none of the defaults, with what it needs beside it.
fn chosen() -> Vec<(&'static str, Value, Value)> {
    let plain = [
        ("enableServer", json!(false)),
        ("staticPodPath", json!("/manifests")),
        ("podLogsDir", json!("/logs")),
        ("fileCheckFrequency", json!("7s")),
        ("httpCheckFrequency", json!("8s")),
        ("staticPodURL", json!("https://a.example/pods")),
        ("address", json!("127.0.0.1")),
        ("port", json!(10_251)),
        (
            "authentication",
            json!({ "anonymous": { "enabled": true }, "webhook": { "enabled": false, "cacheTTL": "9s" },
                "x509": { "clientCAFile": "/ca" } }),
        ),
        (
            "authorization",
            json!({ "mode": "AlwaysAllow", "webhook": { "cacheAuthorizedTTL": "2s", "cacheUnauthorizedTTL": "3s" } }),
        ),
        ("registryPullQPS", json!(6)),
        ("registryBurst", json!(12)),
        ("imagePullCredentialsVerificationPolicy", json!("AlwaysVerify")),
        ("eventRecordQPS", json!(51)),
        ("eventBurst", json!(101)),
        ("enableDebuggingHandlers", json!(false)),
        ("healthzPort", json!(10_249)),
        ("healthzBindAddress", json!("0.0.0.0")),
        ("oomScoreAdj", json!(-500)),
        ("clusterDomain", json!("c.example")),
        ("clusterDNS", json!(["192.0.2.53"])),
        ("streamingConnectionIdleTimeout", json!("1h0m0s")),
        ("nodeStatusUpdateFrequency", json!("11s")),
        ("nodeStatusReportFrequency", json!("6m0s")),
        ("memorySwap", json!({ "swapBehavior": "LimitedSwap" })),
        ("nodeLeaseDurationSeconds", json!(44)),
        ("imageMinimumGCAge", json!("3m0s")),
        ("imageMaximumGCAge", json!("24h0m0s")),
        ("imageGCHighThresholdPercent", json!(90)),
        ("imageGCLowThresholdPercent", json!(70)),
        ("cgroupDriver", json!("systemd")),
        ("singleProcessOOMKill", json!(true)),
        ("runtimeRequestTimeout", json!("1m0s")),
        ("maxPods", json!(50)),
        ("podPidsLimit", json!(1000)),
        ("resolvConf", json!("/run/resolv.conf")),
        ("cpuCFSQuota", json!(false)),
        ("cpuCFSQuotaPeriod", json!("50ms")),
        ("nodeStatusMaxImages", json!(-1)),
        ("serializeImagePulls", json!(false)),
        ("evictionMaxPodGracePeriod", json!(7)),
        ("evictionPressureTransitionPeriod", json!("1m0s")),
        ("evictionMinimumReclaim", json!({ "memory.available": "1Gi" })),
        ("mergeDefaultEvictionSettings", json!(false)),
        ("podsPerCore", json!(9)),
        ("protectKernelDefaults", json!(true)),
        ("failSwapOn", json!(true)),
        ("containerLogMaxSize", json!("5Mi")),
        ("containerLogMaxFiles", json!(3)),
        ("containerLogMaxWorkers", json!(2)),
        ("containerLogMonitorInterval", json!("5s")),
        (
            "systemReserved",
            json!({ "cpu": "100m", "memory": "1Gi", "ephemeral-storage": "2Gi", "pid": "500" }),
        ),
        ("kubeReserved", json!({ "cpu": "1" })),
        ("enforceNodeAllocatable", json!(["none"])),
        ("allowedUnsafeSysctls", json!(["kernel.msg*"])),
        ("providerID", json!("x://1")),
        ("enableSystemLogHandler", json!(false)),
        ("crashLoopBackOff", json!({ "maxContainerRestartPeriod": "30s" })),
        ("seccompDefault", json!(false)),
        ("memoryThrottlingFactor", json!(0.8)),
        ("memoryReservationPolicy", json!("TieredReservation")),
        ("registerWithTaints", json!([{ "key": "a", "value": "b", "effect": "NoSchedule" }])),
        ("registerNode", json!(false)),
        ("containerRuntimeEndpoint", json!("unix:///run/crio/crio.sock")),
        ("imageServiceEndpoint", json!("unix:///run/images.sock")),
        ("failCgroupV1", json!(true)),
        ("cpuManagerPolicy", json!("static")),
        ("cpuManagerReconcilePeriod", json!("5s")),
        ("topologyManagerPolicy", json!("restricted")),
        ("topologyManagerScope", json!("pod")),
        ("reservedSystemCPUs", json!("0-1")),
    ];
    let mut all: Vec<_> = plain.into_iter().map(|(name, value)| (name, value, json!({}))).collect();
    let hard = [
        "memory.available",
        "nodefs.available",
        "nodefs.inodesFree",
        "imagefs.available",
        "imagefs.inodesFree",
    ];
    let hard: Written = hard
        .iter()
        .map(|name| ((*name).to_owned(), json!("3%")))
        .chain([("pid.available".to_owned(), json!("0%"))])
        .collect();
    let reserved_memory = json!([{ "numaNode": 0, "limits": { "memory": "1Gi" } }]);
    let soft = json!({ "memory.available": "2Gi" });
    let patience = json!({ "memory.available": "1m30s" });
    all.extend([
        ("shutdownGracePeriod", json!("30s"), json!({ "shutdownGracePeriodCriticalPods": "10s" })),
        ("shutdownGracePeriodCriticalPods", json!("10s"), json!({ "shutdownGracePeriod": "30s" })),
        (
            "shutdownGracePeriodByPodPriority",
            json!([{ "priority": 0, "shutdownGracePeriodSeconds": 20 }, { "priority": 9, "shutdownGracePeriodSeconds": 5 }]),
            json!({}),
        ),
        ("tlsCertFile", json!("/c"), json!({ "tlsPrivateKeyFile": "/k" })),
        ("tlsPrivateKeyFile", json!("/k"), json!({ "tlsCertFile": "/c" })),
        (
            "preloadedImagesVerificationAllowlist",
            json!(["busybox"]),
            json!({ "imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages" }),
        ),
        (
            "cpuManagerPolicyOptions",
            json!({ "full-pcpus-only": "true" }),
            json!({ "cpuManagerPolicy": "static" }),
        ),
        (
            "topologyManagerPolicyOptions",
            json!({ "prefer-closest-numa-nodes": "true" }),
            json!({ "topologyManagerPolicy": "best-effort" }),
        ),
        ("memoryManagerPolicy", json!("Static"), json!({ "reservedMemory": reserved_memory })),
        ("reservedMemory", reserved_memory.clone(), json!({ "memoryManagerPolicy": "Static" })),
        ("maxParallelImagePulls", json!(4), json!({ "serializeImagePulls": false })),
        ("evictionHard", Value::Object(hard), json!({})),
        ("evictionSoft", soft.clone(), json!({ "evictionSoftGracePeriod": patience })),
        ("evictionSoftGracePeriod", patience.clone(), json!({ "evictionSoft": soft })),
        ("systemReservedCgroup", json!("/system"), json!({ "enforceNodeAllocatable": ["system-reserved"] })),
        ("kubeReservedCgroup", json!("/kube"), json!({ "enforceNodeAllocatable": ["kube-reserved"] })),
    ]);
    all
}

fn object(value: Value) -> Written {
    serde_json::from_value(value).unwrap()
}

fn applied(written: &Written) -> Result<Written, Vec<String>> {
    let mut config = Config::new("n1", [192, 0, 2, 1].into());
    config.apply(written).map(|()| config.configuration())
}

#[test]
fn every_field_of_upstreams_has_its_place() {
    let here: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
    let upstream: Vec<&str> = UPSTREAM.split_whitespace().collect();
    assert_eq!(here, upstream);
}

#[test]
fn every_field_that_works_is_taken_over_and_shown() {
    let chosen = chosen();
    let default = applied(&Written::new()).unwrap();
    let works = FIELDS.iter().filter(|(_, becomes)| !matches!(becomes, Becomes::Only(..)));
    for (name, _) in works {
        if *name == "staticPodURLHeader" {
            continue; // shown without its values, below
        }
        let (_, value, beside) =
            chosen.iter().find(|(known, ..)| known == name).unwrap_or_else(|| panic!("{name} is not tried"));
        let mut written = object(beside.clone());
        written.insert((*name).to_owned(), value.clone());
        let shown = applied(&written).unwrap_or_else(|mistakes| panic!("{name}: {mistakes:?}"));
        assert_eq!(shown.get(*name), Some(value), "{name}");
        assert_ne!(default.get(*name), Some(value), "{name} is tried with its default");
    }
    let header = object(json!({ "staticPodURLHeader": { "Authorization": ["secret"] } }));
    let shown = applied(&header).unwrap();
    assert_eq!(shown["staticPodURLHeader"], json!({ "Authorization": ["<masked>"] }));
}

#[test]
fn what_is_shown_can_be_written() {
    let default = applied(&Written::new()).unwrap();
    assert_eq!(applied(&default).unwrap(), default);
}

#[test]
fn every_other_field_is_refused_by_its_name() {
    for (name, becomes) in FIELDS {
        let Becomes::Only(values, why) = becomes else { continue };
        for good in
            values.iter().map(|text| serde_json::from_str(text).unwrap()).chain([json!(""), Value::Null])
        {
            let written = object(json!({ *name: good }));
            assert!(applied(&written).is_ok(), "{name}: {good}");
        }
        let mistakes = applied(&object(json!({ *name: "some-other-value" }))).unwrap_err();
        assert_eq!(mistakes, [format!("{name}: \"some-other-value\" cannot be had: {why}")]);
    }
    let mistakes = applied(&object(json!({ "maxpods": 1 }))).unwrap_err();
    assert_eq!(mistakes, ["maxpods: KubeletConfiguration has no such field"]);
    assert_eq!(becomes("nodeLabels"), None, "a flag of upstream's, and no field");
}

/// What kubeadm writes says nothing in most of its fields.
#[test]
fn the_port_listens_in_the_families_of_the_node() {
    let at = |first: &str, second: Option<&str>, written: Value| {
        let ip = |text: &str| text.parse().unwrap();
        let mut config = Config::new("n", ip(first)).with_second(second.map(ip));
        config.apply(&object(written)).unwrap();
        config.port.address.to_string()
    };
    assert_eq!(at("192.0.2.1", None, json!({})), "0.0.0.0");
    assert_eq!(at("192.0.2.1", Some("2001:db8::1"), json!({})), "::");
    assert_eq!(at("2001:db8::1", None, json!({})), "::");
    assert_eq!(at("2001:db8::1", None, json!({ "address": "127.0.0.1" })), "127.0.0.1");
}

#[test]
fn kubeadms_file_is_taken() {
    let written = object(json!({
        "authentication": { "anonymous": { "enabled": false }, "webhook": { "cacheTTL": "0s", "enabled": true }, "x509": {} },
        "authorization": { "mode": "Webhook", "webhook": { "cacheAuthorizedTTL": "0s", "cacheUnauthorizedTTL": "0s" } },
        "cgroupDriver": "systemd", "clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": "", "cpuManagerReconcilePeriod": "0s", "crashLoopBackOff": {},
        "evictionPressureTransitionPeriod": "0s", "fileCheckFrequency": "0s", "healthzBindAddress": "127.0.0.1",
        "healthzPort": 10248, "httpCheckFrequency": "0s", "imageMaximumGCAge": "0s", "imageMinimumGCAge": "0s",
        "logging": { "flushFrequency": 0, "options": { "json": { "infoBufferSize": "0" }, "text": { "infoBufferSize": "0" } }, "verbosity": 0 },
        "memorySwap": {}, "nodeStatusReportFrequency": "0s", "nodeStatusUpdateFrequency": "0s", "rotateCertificates": true,
        "runtimeRequestTimeout": "0s", "shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s",
        "staticPodPath": "/etc/kubernetes/manifests", "streamingConnectionIdleTimeout": "0s", "syncFrequency": "0s",
        "volumeStatsAggPeriod": "0s",
    }));
    let shown = applied(&written).unwrap();
    assert_eq!(shown["evictionPressureTransitionPeriod"], "5m0s");
    assert_eq!(shown["imageMinimumGCAge"], "2m0s");
}

#[test]
fn all_mistakes_are_named_at_once() {
    let written = object(json!({
        "maxPods": -1, "clusterDNS": ["x"], "imageGCHighThresholdPercent": 50, "evictionHard": { "a": "1" },
        "healthzPort": 70_000, "systemReserved": { "gpu": "1" }, "enforceNodeAllocatable": ["kube-reserved"],
        "authentication": { "webhok": {} }, "containerLogMaxFiles": 1, "cgroupDriver": "other",
        "registerWithTaints": [{ "key": "a", "effect": "Sometimes" }], "maxParallelImagePulls": 3,
        "crashLoopBackOff": { "maxContainerRestartPeriod": "10m" }, "allowedUnsafeSysctls": ["vm.*"],
        "staticPodURL": "ftp://x", "tlsCertFile": "/c", "containerRuntimeEndpoint": "tcp://x",
        "memorySwap": { "swapBehavior": "UnlimitedSwap" },
    }));
    let mistakes = applied(&written).unwrap_err().join("\n");
    for field in [
        "maxPods: -1",
        "clusterDNS: ",
        "imageGCLowThresholdPercent: 80",
        "evictionHard: ",
        "healthzPort: 70000",
        "systemReserved.gpu: ",
        "kubeReservedCgroup: ",
        "\"webhok\"",
        "containerLogMaxFiles: 1",
        "cgroupDriver: \"other\"",
        "registerWithTaints: ",
        "maxParallelImagePulls: ",
        "crashLoopBackOff.maxContainerRestartPeriod: ",
        "allowedUnsafeSysctls: \"vm.*\"",
        "staticPodURL: ",
        "tlsCertFile: ",
        "containerRuntimeEndpoint: ",
        "memorySwap.swapBehavior: \"UnlimitedSwap\" is unknown, known are NoSwap, LimitedSwap",
    ] {
        assert!(mistakes.contains(field), "{field} is missing from {mistakes}");
    }
}
