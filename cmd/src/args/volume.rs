//! Flags of the command that moves volumes.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args)]
pub struct VolumeArgs {
    #[command(subcommand)]
    pub action: VolumeAction,
}

#[derive(Subcommand)]
pub enum VolumeAction {
    /// Move the volume of a claim that no pod uses, with its files, to another node or another disk of its node. The server
    /// does it, and goes on whether this command runs or not; run again, it shows how far that is
    Move(VolumeMoveArgs),
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true))]
pub struct VolumeMoveArgs {
    /// The claim, or NAMESPACE/CLAIM
    #[arg(value_name = "CLAIM")]
    pub claim: String,
    #[arg(long, short = 'n', value_name = "NAME", default_value = "default")]
    pub namespace: String,
    /// The node where it is to lie
    #[arg(long, value_name = "NODE", group = "what")]
    pub to_node: Option<String>,
    /// A further place of that node, or of its own: NAME stands for the directory local-path/@NAME of the node's data
    /// directory, which is a disk mounted there, or a link to a directory of one
    #[arg(long, value_name = "NAME", group = "what")]
    pub to_place: Option<String>,
    /// Leave the volume where it is, after all: for a move that has not ended
    #[arg(long, group = "what", conflicts_with_all = ["to_node", "to_place", "dry_run"])]
    pub take_back: bool,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Whom to ask, and as whom
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", default_value = "/etc/coracle/admin.conf")]
    pub kubeconfig: PathBuf,
}
