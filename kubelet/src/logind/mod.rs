//! What systemd-logind tells of the machine's end, and how long it waits for us
//! (org.freedesktop.login1(5), <https://systemd.io/INHIBITOR_LOCKS/>).

mod bus;
pub mod wire;

use bus::{BUS, Bus, Descriptor, Object};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;
use wire::{Arg, Message};

pub use bus::BusError;

const LOGIND: Object = Object { name: "org.freedesktop.login1", path: "/org/freedesktop/login1" };
const MANAGER: &str = "org.freedesktop.login1.Manager";
const SYSTEMD: Object = Object { name: "org.freedesktop.systemd1", path: "/org/freedesktop/systemd1" };
const TOLD: &str = "PrepareForShutdown";
/// The file in which logind is told to wait longer; upstream's, so that it is not there twice.
const DROP_IN: &str = "99-kubelet.conf";
const SIGHUP: i32 = 1;
/// How long logind may take to read its configuration anew, and between looks whether it has.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum LogindError {
    #[error(transparent)]
    Bus(#[from] BusError),
    #[error("logind answered {0} with something else")]
    Answer(&'static str),
    #[error("cannot write {}", path.display())]
    DropIn {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "logind waits {} s for us (InhibitDelayMaxSec), less than the {} s that pods have to end, and cannot be told to wait longer",
        there.as_secs_f64(), needed.as_secs_f64()
    )]
    Short { there: Duration, needed: Duration },
}

/// Where logind is found.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The system's message bus.
    pub bus: PathBuf,
    /// Where its configuration is added to.
    pub drop_ins: PathBuf,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            bus: PathBuf::from("/run/dbus/system_bus_socket"),
            drop_ins: PathBuf::from("/etc/systemd/logind.conf.d"),
        }
    }
}

/// While it is held the machine's end waits, for as long as logind is told to wait at most.
#[derive(Debug)]
pub struct Lock {
    _held: Descriptor,
}

pub struct Logind {
    bus: Bus,
    /// Who logind is on the bus.
    owner: String,
}

impl Logind {
    pub async fn connect(bus: &Path) -> Result<Self, LogindError> {
        let mut bus = Bus::connect(bus).await?;
        let rule = format!(
            "type='signal',sender='{}',path='{}',interface='{MANAGER}',member='{TOLD}'",
            LOGIND.name, LOGIND.path
        );
        bus.call(BUS, BUS.name, "AddMatch", &[Arg::Text(&rule)]).await?;
        Ok(Self { bus, owner: String::new() })
    }

    /// How long logind waits at most.
    async fn delay(&mut self) -> Result<Duration, LogindError> {
        let args = [Arg::Text(MANAGER), Arg::Text("InhibitDelayMaxUSec")];
        let got = self.bus.call(LOGIND, "org.freedesktop.DBus.Properties", "Get", &args).await?;
        let micros = got.message.variant().ok_or(LogindError::Answer("InhibitDelayMaxUSec"))?;
        Ok(Duration::from_micros(micros))
    }

    /// Has logind wait long enough, by a file in `drop_ins` where it does not yet.
    pub async fn wait_for(&mut self, needed: Duration, drop_ins: &Path) -> Result<(), LogindError> {
        if self.delay().await? >= needed {
            return Ok(());
        }
        let path = drop_ins.join(DROP_IN);
        let text =
            format!("# So long pods may take to end.\n[Login]\nInhibitDelayMaxSec={}\n", needed.as_secs());
        let written = tokio::fs::create_dir_all(drop_ins).await;
        let written = match written {
            Ok(()) => tokio::fs::write(&path, text).await,
            Err(error) => Err(error),
        };
        written.map_err(|source| LogindError::DropIn { path, source })?;
        let args = [Arg::Text("systemd-logind.service"), Arg::Text("all"), Arg::Int(SIGHUP)];
        self.bus.call(SYSTEMD, "org.freedesktop.systemd1.Manager", "KillUnit", &args).await?;
        let late = Instant::now() + RELOAD_TIMEOUT;
        loop {
            let there = self.delay().await?;
            if there >= needed {
                return Ok(());
            }
            if Instant::now() >= late {
                return Err(LogindError::Short { there, needed });
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// Takes a lock.
    pub async fn inhibit(&mut self) -> Result<Lock, LogindError> {
        let args =
            ["shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay"].map(Arg::Text);
        let mut got = self.bus.call(LOGIND, MANAGER, "Inhibit", &args).await?;
        let place = got.message.descriptor().filter(|place| *place < got.descriptors.len());
        let place = place.ok_or(LogindError::Answer("Inhibit"))?;
        Ok(Lock { _held: got.descriptors.swap_remove(place) })
    }

    /// Waits until the machine is about to end (`true`), or is not any more.
    pub async fn told(&mut self) -> Result<bool, LogindError> {
        loop {
            let message = self.bus.signal().await?;
            let head = &message.head;
            let same = head.member == TOLD && head.interface == MANAGER && head.path == LOGIND.path;
            if same && self.is_logind(&message).await? {
                return message.flag().ok_or(LogindError::Answer(TOLD));
            }
        }
    }

    /// Anybody may tell anything on the bus: only what logind says counts. One that was started anew has another address.
    async fn is_logind(&mut self, message: &Message) -> Result<bool, LogindError> {
        if self.owner != message.head.sender {
            let got = self.bus.call(BUS, BUS.name, "GetNameOwner", &[Arg::Text(LOGIND.name)]).await?;
            self.owner = got.message.texts().into_iter().next().unwrap_or_default();
        }
        Ok(!self.owner.is_empty() && self.owner == message.head.sender)
    }
}
