//! What goes wrong: to one machine, or to one of each, so that two of three stay.

use crate::Error;
use crate::world::{Machine, Part, World, fill, move_to};
use nix::sys::signal::Signal::{SIGCONT, SIGSTOP, SIGTERM};
use rand::Rng;
use rand::rngs::StdRng;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    KillServer,
    EndServer,
    StopServer,
    KillMember,
    StopMember,
    SlowMember,
    FullDisk,
    ApartServer,
    ApartMember,
    ApartBoth,
}

const ALL: [(&str, Kind); 10] = [
    ("kill-server", Kind::KillServer),
    ("end-server", Kind::EndServer),
    ("stop-server", Kind::StopServer),
    ("kill-member", Kind::KillMember),
    ("stop-member", Kind::StopMember),
    ("slow-member", Kind::SlowMember),
    ("full-disk", Kind::FullDisk),
    ("apart-server", Kind::ApartServer),
    ("apart-member", Kind::ApartMember),
    ("apart-both", Kind::ApartBoth),
];

/// A slow machine runs for a tenth of the time.
const RUNS: Duration = Duration::from_millis(20);
const RESTS: Duration = Duration::from_millis(180);

impl Kind {
    pub fn parse(name: &str) -> Result<Self, Error> {
        let found = ALL.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
        found.ok_or_else(|| {
            format!("{name} is no fault, known are {}", ALL.map(|(name, _)| name).join(", ")).into()
        })
    }

    pub fn name(self) -> &'static str {
        ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    pub fn any(random: &mut StdRng) -> Self {
        ALL[random.random_range(0..ALL.len())].1
    }

    fn part(self) -> Part {
        match self {
            Self::KillServer | Self::EndServer | Self::StopServer | Self::ApartServer => Part::Server,
            _ => Part::Member,
        }
    }
}

/// Does it to a machine of chance, and puts it right. Returns what it was.
pub async fn carry_out(
    world: &mut World,
    kind: Kind,
    lasts: Duration,
    random: &mut StdRng,
) -> Result<String, Error> {
    let (one, other) = (random.random_range(0..3), random.random_range(0..3));
    if kind == Kind::ApartBoth {
        let both = [&world.members[one], &world.servers[other]];
        let told = format!("{kind:?} {} and {} for {} ms", both[0].name(), both[1].name(), lasts.as_millis());
        move_to("apart", &both)?;
        tokio::time::sleep(lasts).await;
        move_to("there", &both)?;
        return Ok(told);
    }
    let machine = match kind.part() {
        Part::Server => &mut world.servers[one],
        Part::Member => &mut world.members[one],
    };
    let told = format!("{kind:?} {} for {} ms", machine.name(), lasts.as_millis());
    happen(machine, kind, lasts).await?;
    Ok(told)
}

async fn happen(machine: &mut Machine, kind: Kind, lasts: Duration) -> Result<(), Error> {
    match kind {
        Kind::KillServer | Kind::KillMember => {
            machine.kill()?;
            tokio::time::sleep(lasts).await;
            machine.begin()
        }
        Kind::EndServer => {
            machine.signal(SIGTERM)?;
            tokio::time::sleep(lasts).await;
            machine.kill()?;
            machine.begin()
        }
        Kind::StopServer | Kind::StopMember => {
            machine.signal(SIGSTOP)?;
            tokio::time::sleep(lasts).await;
            machine.signal(SIGCONT)
        }
        Kind::SlowMember => {
            let until = Instant::now() + lasts;
            while Instant::now() < until {
                machine.signal(SIGSTOP)?;
                tokio::time::sleep(RESTS).await;
                machine.signal(SIGCONT)?;
                tokio::time::sleep(RUNS).await;
            }
            Ok(())
        }
        Kind::FullDisk => {
            fill(&machine.filler())?;
            tokio::time::sleep(lasts).await;
            std::fs::remove_file(machine.filler())?;
            // etcd ends when it cannot write its log.
            if machine.has_ended() { machine.begin() } else { Ok(()) }
        }
        Kind::ApartServer | Kind::ApartMember => {
            move_to("apart", &[&*machine])?;
            tokio::time::sleep(lasts).await;
            move_to("there", &[&*machine])
        }
        Kind::ApartBoth => Ok(()),
    }
}
