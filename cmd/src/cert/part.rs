//! `coracle kubeconfig`: a kubeconfig for a part of the cluster that runs elsewhere, under the identity that upstream's
//! default roles are written for.

use super::admin::{Cluster, life};
use crate::parts::args::{KubeconfigArgs, Part};
use crate::settings::node_name;

const NODES: &str = "system:nodes";

pub fn run(args: KubeconfigArgs) -> Result<(), String> {
    let life = life(Some(&args.ttl), false)?;
    let (user, groups) = identity(args.part, args.node)?;
    let cluster = Cluster { data_dir: args.data_dir, server: args.server, kubeconfig: args.kubeconfig };
    cluster.write(&user, groups, life, args.output.as_deref())
}

/// User and groups.
fn identity(part: Part, node: Option<String>) -> Result<(String, &'static [&'static str]), String> {
    let user = match part {
        Part::Kubelet => {
            let mut mistakes = Vec::new();
            let name = node_name(node, &mut mistakes);
            let mistake = mistakes.pop();
            return mistake.map_or_else(|| Ok((format!("system:node:{name}"), &[NODES][..])), Err);
        }
        _ if node.is_some() => return Err("node: only a kubelet's kubeconfig is of one node".to_owned()),
        Part::Scheduler => "system:kube-scheduler",
        Part::ControllerManager => "system:kube-controller-manager",
        Part::Proxy => "system:kube-proxy",
    };
    Ok((user.to_owned(), &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_upstreams() {
        let none: &[&str] = &[];
        let of = |part, node: Option<&str>| identity(part, node.map(str::to_owned));
        assert_eq!(of(Part::Scheduler, None), Ok(("system:kube-scheduler".to_owned(), none)));
        assert_eq!(
            of(Part::ControllerManager, None),
            Ok(("system:kube-controller-manager".to_owned(), none))
        );
        assert_eq!(of(Part::Proxy, None), Ok(("system:kube-proxy".to_owned(), none)));
        assert_eq!(of(Part::Kubelet, Some("n1")), Ok(("system:node:n1".to_owned(), &["system:nodes"][..])));
        assert!(of(Part::Kubelet, Some("N_1")).is_err() && of(Part::Proxy, Some("n1")).is_err());
    }
}
