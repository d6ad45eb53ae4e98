//! Flags of the commands that look at the store, and copy and move it.

use crate::etcd::EtcdArgs;
use crate::scheduled::ScheduleArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args)]
pub struct DbArgs {
    #[command(subcommand)]
    pub command: DbCommand,
    /// Where the server's state lives
    #[arg(long, value_name = "DIR", default_value = crate::settings::DEFAULT_DATA_DIR, global = true)]
    pub data_dir: PathBuf,
}

#[derive(Subcommand)]
pub enum DbCommand {
    /// Read every file of the store and say what it holds and what is damaged; nothing is changed
    Check,
    /// Make a store that opens of what can be read. What was there before is kept beside it
    Repair(RepairArgs),
    /// Write the store of a stopped server anew, which gives back what it does not need of the disk
    Compact,
    /// Write every object as a line of JSON, of a server that runs or is stopped
    Export {
        /// Readable by nobody else: it holds the cluster's secrets
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Make a store of such a file, or of the snapshot of an etcd in which Kubernetes has kept its objects
    Import {
        /// Of coracle db export, or of etcdctl snapshot save
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BackupArgs {
    /// Where the backup is written, readable by nobody else: it holds the cluster's keys
    #[arg(value_name = "FILE", required = true)]
    pub file: Option<PathBuf>,
    /// Where the server's state lives, be it running or stopped
    #[arg(long, value_name = "DIR", default_value = crate::settings::DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// Seal it by this key: 32 random bytes in hex or base64, such as openssl rand -hex 32 makes
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    #[command(subcommand)]
    pub action: Option<BackupAction>,
}

#[derive(Subcommand)]
pub enum BackupAction {
    /// Read a backup whole, and say what it holds or what is wrong with it
    Verify {
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The key that it is sealed by
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
    /// List the backups that the server has written by itself, in its directory and its bucket
    List(Box<BackupListArgs>),
}

#[derive(Args)]
pub struct BackupListArgs {
    /// The server's configuration file, which says where they are; flags win
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the server's state lives [default: /var/lib/coracle]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    #[command(flatten)]
    pub backup: ScheduleArgs,
}

#[derive(Args)]
pub struct RestoreArgs {
    /// A file that coracle backup has written, or a directory of them: the newest one that can be
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Where the state is to live: a directory that is empty or does not exist
    #[arg(long, value_name = "DIR", default_value = crate::settings::DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// The key that it is sealed by
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// The state as of this revision, by the commits that the server archived after the backup
    #[arg(long, value_name = "REVISION", group = "moment")]
    pub to_revision: Option<u64>,
    /// As of this time, such as 2026-05-03T14:30:00Z
    #[arg(long, value_name = "TIME", group = "moment")]
    pub to_time: Option<jiff::Timestamp>,
    /// As of the newest commit that was archived
    #[arg(long, group = "moment")]
    pub to_latest: bool,
    /// Where the archived commits lie [default: where the backup does]
    #[arg(long, value_name = "DIR", requires = "moment")]
    pub journal_dir: Option<PathBuf>,
    /// Move the state that is there aside, within the directory. Volumes and pods' files stay where they are
    #[arg(long)]
    pub replace: bool,
}

/// A store that objects can be moved from and to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StoreKind {
    Sled,
    Etcd,
}

#[derive(Args)]
pub struct MigrateArgs {
    /// Where the objects are
    #[arg(long, value_name = "BACKEND")]
    pub from: StoreKind,
    /// Where they are to be. Nothing may be there yet under etcd's prefix; an older store in the data directory is moved aside
    #[arg(long, value_name = "BACKEND")]
    pub to: StoreKind,
    /// Where this machine's server has its state. A server that runs on it goes on reading and writes nothing meanwhile
    #[arg(long, value_name = "DIR", default_value = crate::settings::DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    #[command(flatten)]
    pub etcd: EtcdArgs,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct RepairArgs {
    /// Commits after this revision may be lost: what a refused start, or `check`, names. The state is as before the first
    /// that is lost
    #[arg(long, value_name = "REVISION")]
    pub accept_loss_after: Option<u64>,
    /// Keep every object that can be read, be it of the time before the damage or after it
    #[arg(long)]
    pub salvage: bool,
}
