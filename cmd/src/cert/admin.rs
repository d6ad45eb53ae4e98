//! `coracle cert admin`: a kubeconfig for an administrator, by the authority in the data directory.

use crate::args::CertAdminArgs;
use crate::settings::admin_conf;
use crate::time::Time;
use coracle_api::error::chain;
use coracle_apiserver::kubeconfig::render;
use coracle_apiserver::pki::{ADMINS, sign_client_in, write_private};
use jiff::Timestamp;
use kube::config::Kubeconfig;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest life of what is asked for here: as long as the certificates of the server itself.
const MAX_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// Of a member of `system:masters`, whom no role can take anything from: a working day and the night after it.
const MAX_SUPER_LIFETIME: Duration = Duration::from_secs(24 * 3600);

const MASTERS: &str = "system:masters";

pub fn run(args: CertAdminArgs) -> Result<(), String> {
    let life = life(args.ttl.as_deref(), args.super_)?;
    let group = if args.super_ { MASTERS } else { ADMINS };
    let cluster = Cluster { data_dir: args.data_dir, server: args.server, kubeconfig: args.kubeconfig };
    cluster.write(&args.user, &[group], life, args.output.as_deref())
}

/// Where a kubeconfig leads to, and by whose authority.
pub(super) struct Cluster {
    pub data_dir: PathBuf,
    /// Absent: that of the administrator's kubeconfig.
    pub server: Option<String>,
    /// The administrator's, where it is at another place than the data directory says.
    pub kubeconfig: Option<PathBuf>,
}

impl Cluster {
    /// Makes a kubeconfig for `user` in these groups, and writes it (0600), to standard output without `output`.
    pub fn write(
        self,
        user: &str,
        groups: &[&str],
        life: Duration,
        output: Option<&Path>,
    ) -> Result<(), String> {
        let server = match self.server {
            Some(server) => server,
            None => server_of(&self.kubeconfig.unwrap_or_else(|| admin_conf(&self.data_dir)))?,
        };
        let dir = self.data_dir.join("pki");
        let (signed, ca_pem) =
            sign_client_in(&dir, user, groups, life, Timestamp::now()).map_err(|e| chain(&e))?;
        let text = render(&server, &ca_pem, user, &signed.cert_pem, &signed.key_pem);
        match output {
            Some(path) => write_private(path, text).map_err(|e| chain(&e)),
            None => {
                print!("{text}");
                Ok(())
            }
        }
    }
}

/// How long a certificate is good: a day where nobody says, but of a master somebody must.
pub(super) fn life(ttl: Option<&str>, master: bool) -> Result<Duration, String> {
    let (longest, words) = if master { (MAX_SUPER_LIFETIME, "24h") } else { (MAX_LIFETIME, "8760h") };
    let ttl = match ttl {
        Some(ttl) => ttl,
        None if master => return Err("--super needs --ttl: say how long, at most 24h".to_owned()),
        None => "24h",
    };
    let wrong =
        || format!("ttl: \"{ttl}\" is no duration such as 8h or 1h30m, of at least 10m and at most {words}");
    let Time(life) = ttl.parse().map_err(|_| wrong())?;
    let allowed = |life: &Duration| *life >= Duration::from_secs(600) && *life <= longest;
    Some(life).filter(allowed).ok_or_else(wrong)
}

/// Where the cluster of a kubeconfig is.
fn server_of(path: &Path) -> Result<String, String> {
    let failed =
        |why: &dyn std::fmt::Display| format!("{}: {why}; --server says where the API is", path.display());
    let config = Kubeconfig::read_from(path).map_err(|e| failed(&e))?;
    let mut clusters = config.clusters.into_iter().filter_map(|named| named.cluster?.server);
    clusters.next().ok_or_else(|| failed(&"it names no server"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_short_and_those_of_masters_are_stated() {
        assert_eq!(life(None, false), Ok(Duration::from_secs(24 * 3600)));
        assert_eq!(life(Some("15m"), true), Ok(Duration::from_secs(900)));
        assert!(life(None, true).is_err() && life(Some("25h"), true).is_err());
        assert!(life(Some("9000h"), false).is_err() && life(Some("0"), false).is_err());
        assert!(life(Some("soon"), false).is_err() && life(Some("-1h"), false).is_err());
    }
}
