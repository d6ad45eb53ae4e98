use super::*;

fn read(text: &str) -> Result<Configuration, String> {
    let given = Given { node_name: "n1".to_owned(), ..Given::default() };
    Configuration::read(text, &given).map_err(|e| e.to_string())
}

#[test]
fn the_word_mode_alone_is_a_document() {
    assert_eq!(read("mode: nftables").expect("read").mode, Mode::Nftables);
    assert_eq!(read("mode: ipvs").expect("read").ipvs, balancing::Settings::default());
    let refused = read("mode: quick").expect_err("refused");
    assert_eq!(refused, "mode: \"quick\" is none of iptables, nftables, ipvs, userspace");
    assert_eq!(read("").expect("defaults").mode, Mode::Iptables);
}

/// What kubeadm 1.32 writes, but for the path of its kubeconfig.
const KUBEADM: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1
bindAddress: 0.0.0.0
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: \"\"
  burst: 0
  contentType: \"\"
  kubeconfig: \"\"
  qps: 0
clusterCIDR: 10.42.0.0/16,fd01::/64
configSyncPeriod: 0s
conntrack:
  maxPerCore: null
  min: null
  tcpBeLiberal: false
  tcpCloseWaitTimeout: null
  tcpEstablishedTimeout: 12h
  udpStreamTimeout: 0s
  udpTimeout: 0s
detectLocal:
  bridgeInterface: \"\"
  interfaceNamePrefix: \"\"
detectLocalMode: \"\"
enableProfiling: false
healthzBindAddress: \"\"
hostnameOverride: \"\"
iptables:
  localhostNodePorts: null
  masqueradeAll: false
  masqueradeBit: 15
  minSyncPeriod: 1s
  syncPeriod: 30s
ipvs:
  excludeCIDRs: null
  minSyncPeriod: 0s
  scheduler: \"\"
  strictARP: false
  syncPeriod: 0s
  tcpFinTimeout: 0s
  tcpTimeout: 0s
  udpTimeout: 0s
kind: KubeProxyConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: \"0\"
    text:
      infoBufferSize: \"0\"
  verbosity: 0
metricsBindAddress: 0.0.0.0:10249
mode: \"\"
nftables:
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
nodePortAddresses: null
oomScoreAdj: null
portRange: \"\"
showHiddenMetricsForVersion: \"\"
winkernel:
  enableDSR: false
  forwardHealthCheckVip: false
  networkName: \"\"
  rootHnsEndpointName: \"\"
  sourceVip: \"\"
";

#[test]
fn what_kubeadm_writes_is_taken_in() {
    let read = read(KUBEADM).expect("read");
    assert_eq!(read.mark, 1 << 15);
    assert_eq!((read.sync_period, read.min_sync_period), (Some(CHECK_INTERVAL), Duration::from_secs(1)));
    assert_eq!(read.cluster_cidr(Family::V6).as_deref(), Some("fd01::/64"));
    assert_eq!(read.metrics_address.to_string(), "0.0.0.0:10249");
    assert_eq!(read.health_address.to_string(), "0.0.0.0:10256");
    assert_eq!(read.conntrack.tcp_established_timeout, Some(Duration::from_secs(43_200)));
    assert_eq!(read.conntrack.udp_timeout, Some(Duration::ZERO), "0 leaves the kernel's");
    assert_eq!(read.local_detector(Family::V4, &[]), LocalDetector::Cidr("10.42.0.0/16".to_owned()));
}

/// Each field of upstream's that is not done is refused under its name.
#[test]
fn no_field_is_ignored() {
    let refused = [
        ("apiVersion: v1", "apiVersion"),
        ("kind: Pod", "kind"),
        ("featureGates: {AllAlpha: true}", "featureGates.AllAlpha"),
        ("clientConnection: {kubeconfig: /k}", "clientConnection.kubeconfig"),
        ("clientConnection: {acceptContentTypes: a}", "clientConnection.acceptContentTypes"),
        ("clientConnection: {contentType: a}", "clientConnection.contentType"),
        ("clientConnection: {qps: 5}", "clientConnection.qps"),
        ("clientConnection: {burst: 5}", "clientConnection.burst"),
        ("logging: {format: json}", "logging.format"),
        ("logging: {verbosity: 4}", "logging.verbosity"),
        ("logging: {vmodule: [{filePattern: a, verbosity: 1}]}", "logging.vmodule"),
        ("hostnameOverride: other", "hostnameOverride"),
        ("bindAddress: x", "bindAddress"),
        ("healthzBindAddress: x", "healthzBindAddress"),
        ("metricsBindAddress: x", "metricsBindAddress"),
        ("enableProfiling: true", "enableProfiling"),
        ("showHiddenMetricsForVersion: '1.30'", "showHiddenMetricsForVersion"),
        ("iptables: {masqueradeBit: 32}", "iptables.masqueradeBit"),
        ("iptables: {syncPeriod: 1s, minSyncPeriod: 2s}", "iptables.minSyncPeriod"),
        ("nftables: {masqueradeBit: -1}", "nftables.masqueradeBit"),
        ("ipvs: {scheduler: best}", "ipvs.scheduler"),
        ("ipvs: {excludeCIDRs: [10.0.0.0]}", "ipvs.excludeCIDRs[0]"),
        ("ipvs: {tcpTimeout: 100ms}", "ipvs.tcpTimeout"),
        ("ipvs: {tcpFinTimeout: 9999999s}", "ipvs.tcpFinTimeout"),
        ("ipvs: {udpTimeout: 1ms}", "ipvs.udpTimeout"),
        ("mode: ipvs\nipvs: {syncPeriod: 1s, minSyncPeriod: 2s}", "ipvs.minSyncPeriod"),
        ("winkernel: {enableDSR: true}", "winkernel"),
        ("windowsRunAsService: true", "windowsRunAsService"),
        ("detectLocalMode: x", "detectLocalMode"),
        ("detectLocalMode: BridgeInterface", "detectLocal.bridgeInterface"),
        (
            "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: 'a b'}",
            "detectLocal.interfaceNamePrefix",
        ),
        ("clusterCIDR: x", "clusterCIDR"),
        ("clusterCIDR: 10.0.0.0/8,10.42.0.0/16", "clusterCIDR"),
        ("nodePortAddresses: [primary, 10.0.0.0/8]", "nodePortAddresses[0]"),
        ("oomScoreAdj: -999", "oomScoreAdj"),
        ("configSyncPeriod: 1m", "configSyncPeriod"),
        ("portRange: 1-2", "portRange"),
    ];
    for (text, field) in refused {
        let why = read(text).expect_err(text);
        assert!(why.starts_with(&format!("{field}: ")), "{text}: {why}");
    }
    for broken in
        ["modus: iptables", "iptables: {masqueradeBits: 1}", "iptables: {syncPeriod: soon}", "mode: [", "- a"]
    {
        assert!(!read(broken).expect_err(broken).is_empty());
    }
    let both = read("mode: x\nportRange: 1-2").expect_err("two mistakes");
    assert!(both.contains("mode: ") && both.contains("portRange: "), "{both}");
}

#[test]
fn the_section_ipvs_is_taken_in() {
    let text = "mode: ipvs\nipvs: {scheduler: sh, strictARP: true, excludeCIDRs: [192.0.2.0/24], syncPeriod: 10s,\n  \
                minSyncPeriod: 2s, tcpTimeout: 15m, tcpFinTimeout: 1m, udpTimeout: 5s}\niptables: {masqueradeBit: 15}";
    let read = read(text).expect("read");
    assert_eq!((read.mode, read.mark), (Mode::Ipvs, 1 << 15));
    assert_eq!(
        (read.sync_period, read.min_sync_period),
        (Some(Duration::from_secs(10)), Duration::from_secs(2))
    );
    assert_eq!(read.ipvs.timeouts, [900, 60, 5].map(Duration::from_secs));
    assert!(read.ipvs.strict_arp && read.ipvs.scheduler == "sh");
    assert!(read.ipvs.excludes("192.0.2.9".parse().expect("ip")));
}

#[test]
fn flags_win_and_a_missing_range_is_the_clusters() {
    let flags =
        Flags { proxy_mode: Some("nftables".to_owned()), masquerade_all: Some(true), ..Flags::default() };
    let given = Given { flags, cluster_cidr: Some("10.42.0.0/16".to_owned()), ..Given::default() };
    let read = Configuration::read("mode: iptables", &given).expect("read");
    assert_eq!((read.mode, read.masquerade_all), (Mode::Nftables, true));
    assert_eq!(read.cluster_cidr(Family::V4).as_deref(), Some("10.42.0.0/16"));
    assert_eq!(read.cluster_cidr(Family::V6), None);
}

#[test]
fn node_ports_answer_where_they_are_told_to() {
    let ips: [IpAddr; 2] = ["192.0.2.1".parse().expect("ip"), "fd02::1".parse().expect("ip")];
    let ask = |text: &str, family| read(text).expect("read").node_port_networks(family, &ips);
    assert!(ask("", Family::V4).is_empty());
    assert_eq!(ask("nodePortAddresses: [primary]", Family::V6), ["fd02::1/128"]);
    assert_eq!(ask("nodePortAddresses: [10.0.0.0/8, fd00::/8]", Family::V4), ["10.0.0.0/8"]);
}
