//! The cluster's authorities are replaced while everything runs: `coracle cert rotate-ca` asks here.

use super::control_plane::first_objects;
use super::identity::Clients;
use super::revoked;
use crate::address::NodeIps;
use crate::authorities::{Holdings, held_by};
use crate::config::Config;
use crate::door::Step;
use coracle_api::error::chain;
use coracle_apiserver::bootstrap;
use coracle_apiserver::pki::{Pki, Stage};
use coracle_apiserver::server::ApiServer;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use std::sync::Arc;
use tokio::sync::watch::Receiver;

/// The label of nodes that are in the server's own process.
const SIMULATED: &str = "simulated";

#[derive(Clone)]
pub struct Rotation {
    pub pki: Arc<Pki>,
    pub api: ApiServer,
    pub config: Arc<Config>,
    pub port: u16,
    pub url: String,
    /// The node's, of now.
    pub addresses: Receiver<NodeIps>,
}

impl Rotation {
    /// Takes a step, and says where that leaves the cluster and what is left to do.
    ///
    /// # Errors
    /// It is not the step's turn, or a node is not as far.
    pub async fn carry_out(&self, step: Step) -> Result<String, String> {
        let stage = self.pki.stage();
        match (step, stage) {
            (Step::Show, _) => {}
            (Step::Begin, Stage::Issuing) => {
                return Err("the new authorities sign already; --finish drops the old ones first".to_owned());
            }
            (Step::Begin, _) => self.pki.begin_rotation().map_err(|e| chain(&e))?,
            (Step::Issue { anyway }, Stage::Trusting) => {
                self.all_nodes(anyway, "trust the new authority", |held, ca| held.trusts(ca.last())).await?;
                self.pki.issue_from_next().map_err(|e| chain(&e))?;
            }
            (Step::Issue { .. }, Stage::Issuing) => self.pki.issue_from_next().map_err(|e| chain(&e))?,
            (Step::Finish { anyway }, Stage::Issuing) => {
                self.all_nodes(anyway, "have certificates of the new authority", |held, ca| {
                    held.is_of(ca.first())
                })
                .await?;
                self.pki.end_rotation().map_err(|e| chain(&e))?;
            }
            (Step::Abandon, Stage::Trusting) => self.pki.end_rotation().map_err(|e| chain(&e))?,
            (Step::Abandon, Stage::Issuing) => {
                return Err("the new authorities sign already: finish it, and begin anew".to_owned());
            }
            (Step::Finish { .. }, Stage::Trusting) => {
                return Err("the old authorities sign yet; --issue comes first".to_owned());
            }
            (_, Stage::Settled) => return Err("no new authority was made; begin without a flag".to_owned()),
        }
        if step != Step::Show {
            self.publish().await?;
        }
        self.report(stage, step).await
    }

    /// Where others read whom to trust. The ConfigMaps of namespaces are a controller's.
    async fn publish(&self) -> Result<(), String> {
        revoked::write(&self.pki, &self.url, &self.config.kubeconfig);
        let config = self.config.at(*self.addresses.borrow());
        let objects = first_objects(&config, &self.pki, self.port);
        bootstrap::apply(self.api.registry(), &objects).await.map(drop).map_err(|e| chain(&e))
    }

    /// Nodes of other machines.
    async fn nodes(&self) -> Result<Vec<Node>, String> {
        let client = Clients::new(self.api.clone()).privileged("system:coracle:certificates");
        let all = Api::<Node>::all(client).list(&ListParams::default()).await.map_err(|e| chain(&e))?;
        let is_other = |node: &Node| {
            node.name_any() != self.config.node_name
                && node.labels().get("type").is_none_or(|of| of != SIMULATED)
        };
        Ok(all.items.into_iter().filter(is_other).collect())
    }

    async fn all_nodes(
        &self,
        anyway: bool,
        what: &str,
        good: impl Fn(&Holdings, &[String]) -> bool,
    ) -> Result<(), String> {
        let names = self.names()?;
        let late: Vec<String> = self
            .nodes()
            .await?
            .into_iter()
            .filter_map(|node| {
                let held = held_by(&node);
                (!held.is_some_and(|held| good(&held, &names))).then(|| node.name_any())
            })
            .collect();
        if late.is_empty() || anyway {
            return Ok(());
        }
        Err(format!(
            "these nodes do not say that they {what}: {}; wait until they are on and do, or lose them with --force",
            late.join(", ")
        ))
    }

    /// Of the cluster's authorities, the one that signs first.
    fn names(&self) -> Result<Vec<String>, String> {
        crate::authorities::names(&self.pki.ca_pem())
    }

    async fn report(&self, before: Stage, step: Step) -> Result<String, String> {
        let names = self.names()?;
        let mut text = stage_of(self.pki.stage(), &names, before, step);
        for node in self.nodes().await? {
            let said = match held_by(&node) {
                None => "does not say what it trusts (its kubelet is not of `coracle agent`)".to_owned(),
                Some(held) => {
                    format!("trusts {}, has certificates of {}", held.trusted.join(" and "), held.issuer)
                }
            };
            text += &format!("\nnode {}: {said}", node.name_any());
        }
        Ok(text)
    }
}

const LEFT_AFTER_BEGIN: &str = "\
left to do before the old one goes:
  kubeconfigs that were handed out: `coracle cert admin` makes new ones, which trust both
  `coracle kubelet|proxy|scheduler|controllers --kubeconfig`: their kubeconfigs and --client-ca-file need both authorities
  join commands: those with --discovery-token-ca-cert-hash name the old one; `coracle token create --print-join-command`
then, when every node trusts both: coracle cert rotate-ca --issue";
const LEFT_AFTER_ISSUE: &str = "\
left to do before the old one goes:
  pods whose programs read kube-root-ca.crt at their start only: restart them
  kubeconfigs that were handed out: `coracle cert admin` makes new ones; the old ones end with the old authority
  certificates that were signed on request (`kubectl get csr`): ask for new ones
then, when every node has certificates of the new one: coracle cert rotate-ca --finish";

fn stage_of(stage: Stage, names: &[String], before: Stage, step: Step) -> String {
    let (first, last) =
        (names.first().cloned().unwrap_or_default(), names.last().cloned().unwrap_or_default());
    match stage {
        Stage::Trusting => format!("{last} is trusted beside {first}, which signs\n{LEFT_AFTER_BEGIN}"),
        Stage::Issuing => format!("{first} signs, {last} is trusted yet\n{LEFT_AFTER_ISSUE}"),
        Stage::Settled if step == Step::Abandon => {
            format!("the new authority is gone; {first} signs as before")
        }
        Stage::Settled if before == Stage::Issuing => {
            format!("{first} alone is trusted; the old one is gone")
        }
        Stage::Settled => format!("{first} signs and is trusted, and no other"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_says_what_comes_next() {
        let names = ["old".to_owned(), "new".to_owned()];
        let text = |stage, before, step| stage_of(stage, &names, before, step);
        let trusting = text(Stage::Trusting, Stage::Settled, Step::Begin);
        assert!(
            trusting.starts_with("new is trusted beside old, which signs\n") && trusting.ends_with("--issue")
        );
        let issuing = text(Stage::Issuing, Stage::Trusting, Step::Issue { anyway: false });
        assert!(issuing.starts_with("old signs, new is trusted yet\n") && issuing.ends_with("--finish"));
        let done = text(Stage::Settled, Stage::Issuing, Step::Finish { anyway: false });
        assert_eq!(done, "old alone is trusted; the old one is gone");
        assert_eq!(
            text(Stage::Settled, Stage::Settled, Step::Show),
            "old signs and is trusted, and no other"
        );
    }
}
