//! The file of `--tracing-config-file`: kind TracingConfiguration of `apiserver.config.k8s.io`
//! (<https://kubernetes.io/docs/concepts/cluster-administration/system-traces/>).

use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Upstream's: the collector's port for gRPC on this machine.
const DEFAULT_ENDPOINT: &str = "localhost:4317";
/// gRPC's, of addresses without one.
const DEFAULT_PORT: u16 = 443;
const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"];
const MILLION: i64 = 1_000_000;

/// Where spans go, in gRPC's names (<https://github.com/grpc/grpc/blob/master/doc/naming.md>).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Host {
        host: String,
        port: u16,
    },
    /// Of a socket of the abstract namespace the first byte is zero.
    Unix(PathBuf),
}

/// What is traced, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub endpoint: Endpoint,
    /// Of a million requests that belong to no trace, how many begin one.
    pub per_million: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    endpoint: Option<String>,
    sampling_rate_per_million: Option<i64>,
}

impl Config {
    /// The error names the file.
    pub fn load(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let file: File = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        if file.kind != "TracingConfiguration" || !VERSIONS.contains(&file.api_version.as_str()) {
            let expected = VERSIONS[0];
            return Err(format!(
                "expected {expected} TracingConfiguration, got {} {}",
                file.api_version, file.kind
            ));
        }
        let rate = file.sampling_rate_per_million.unwrap_or(0);
        let wrong = |why: &str| Err(format!("samplingRatePerMillion: Invalid value: {rate}: {why}"));
        if rate < 0 {
            return wrong("sampling rate must be positive");
        }
        if rate > MILLION {
            return wrong("sampling rate per million must be less than or equal to one million");
        }
        let endpoint = endpoint(file.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT))?;
        Ok(Self { endpoint, per_million: u32::try_from(rate).unwrap_or(0) })
    }
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    if let Some(path) = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")) {
        return Ok(Endpoint::Unix(path.into()));
    }
    if let Some(name) = text.strip_prefix("unix-abstract:") {
        return Ok(Endpoint::Unix(format!("\0{name}").into()));
    }
    let address = match text.split_once("//") {
        None => text,
        // After the two slashes comes the name server, which is this machine's here.
        Some(("dns:", rest)) => rest.rsplit('/').next().unwrap_or_default(),
        Some((scheme, _)) => {
            let scheme = scheme.trim_end_matches(':');
            return Err(format!(
                "endpoint: Invalid value: {text:?}: unsupported scheme: {scheme}.  Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md"
            ));
        }
    };
    let wrong = || format!("endpoint: Invalid value: {text:?}: must be a host and a port");
    let authority: http::uri::Authority = address.parse().map_err(|_| wrong())?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    if host.is_empty() {
        return Err(wrong());
    }
    Ok(Endpoint::Host { host, port: authority.port_u16().unwrap_or(DEFAULT_PORT) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";

    fn parsed(rest: &str) -> Result<Config, String> {
        Config::parse(&format!("{HEAD}{rest}"))
    }

    fn host(host: &str, port: u16) -> Endpoint {
        Endpoint::Host { host: host.to_owned(), port }
    }

    #[test]
    fn what_is_left_out_is_upstreams_default() {
        assert_eq!(parsed("").unwrap(), Config { endpoint: host("localhost", 4317), per_million: 0 });
        assert_eq!(parsed("samplingRatePerMillion: 1000000").unwrap().per_million, 1_000_000);
    }

    #[test]
    fn endpoints_are_those_of_grpc() {
        for (text, wanted) in [
            ("10.0.0.1:4317", host("10.0.0.1", 4317)),
            ("'[::1]:4317'", host("::1", 4317)),
            ("dns:///collector.local:4317", host("collector.local", 4317)),
            ("dns://1.1.1.1/collector.local", host("collector.local", 443)),
            ("unix:///run/otel.sock", Endpoint::Unix("/run/otel.sock".into())),
            ("unix-abstract:otel", Endpoint::Unix("\0otel".into())),
        ] {
            assert_eq!(parsed(&format!("endpoint: {text}")).unwrap().endpoint, wanted, "{text}");
        }
    }

    #[test]
    fn mistakes_are_told() {
        for (rest, why) in [
            ("samplingRatePerMillion: -1", "sampling rate must be positive"),
            ("samplingRatePerMillion: 1000001", "less than or equal to one million"),
            ("endpoint: http://a:1", "unsupported scheme: http"),
            ("endpoint: ':1'", "must be a host and a port"),
            ("other: 1", "other"),
        ] {
            let error = parsed(rest).unwrap_err();
            assert!(error.contains(why), "{rest}: {error}");
        }
        assert!(Config::parse("apiVersion: v1\nkind: Pod").unwrap_err().starts_with("expected "));
    }
}
