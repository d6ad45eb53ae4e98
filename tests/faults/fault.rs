//! What goes wrong: to one machine, or to one of each, so that two of three stay.

use crate::Error;
use crate::nodes::Nodes;
use crate::world::{Machine, Part, World, blind, fill, move_to};
use nix::sys::signal::Signal::{SIGCONT, SIGSTOP, SIGTERM};
use rand::Rng;
use rand::rngs::StdRng;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Kill,
    End,
    Stop,
    Slow,
    FullDisk,
    Apart,
    /// Of the members of etcd, and of nobody else.
    Blind,
    /// Killed for longer than a silent node is waited for: its pods are replaced elsewhere before it comes back.
    Lose,
    /// The same, but cut off: it goes on alone.
    Strand,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    One(What, Part),
    /// A server and a member.
    ApartBoth,
}

const ALL: [(&str, Kind); 21] = [
    ("kill-server", Kind::One(What::Kill, Part::Server)),
    ("end-server", Kind::One(What::End, Part::Server)),
    ("stop-server", Kind::One(What::Stop, Part::Server)),
    ("slow-server", Kind::One(What::Slow, Part::Server)),
    ("full-disk-server", Kind::One(What::FullDisk, Part::Server)),
    ("apart-server", Kind::One(What::Apart, Part::Server)),
    ("blind-server", Kind::One(What::Blind, Part::Server)),
    ("kill-member", Kind::One(What::Kill, Part::Member)),
    ("stop-member", Kind::One(What::Stop, Part::Member)),
    ("slow-member", Kind::One(What::Slow, Part::Member)),
    ("full-disk-member", Kind::One(What::FullDisk, Part::Member)),
    ("apart-member", Kind::One(What::Apart, Part::Member)),
    ("apart-both", Kind::ApartBoth),
    ("kill-agent", Kind::One(What::Kill, Part::Agent)),
    ("end-agent", Kind::One(What::End, Part::Agent)),
    ("stop-agent", Kind::One(What::Stop, Part::Agent)),
    ("slow-agent", Kind::One(What::Slow, Part::Agent)),
    ("full-disk-agent", Kind::One(What::FullDisk, Part::Agent)),
    ("apart-agent", Kind::One(What::Apart, Part::Agent)),
    ("lose-agent", Kind::One(What::Lose, Part::Agent)),
    ("strand-agent", Kind::One(What::Strand, Part::Agent)),
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

    /// Whether pods of a node may be replaced by it.
    pub fn loses_pods(self) -> bool {
        matches!(self, Self::One(What::Lose | What::Strand, Part::Agent))
    }
}

/// What was done.
pub struct Done {
    pub told: String,
    /// The agent that it was done to.
    pub agent: Option<String>,
    /// How long the lost agent's pods were missed.
    pub replaced_after: Option<Duration>,
}

/// Does it to a machine of chance, and puts it right.
pub async fn carry_out(
    world: &mut World,
    nodes: &Nodes,
    kind: Kind,
    lasts: Duration,
    random: &mut StdRng,
) -> Result<Done, Error> {
    let (one, other) = (random.random_range(0..3), random.random_range(0..3));
    let Kind::One(what, part) = kind else {
        let both = [&world.members[one], &world.servers[other]];
        let told = format!(
            "{} of {} and {} for {} ms",
            kind.name(),
            both[0].name(),
            both[1].name(),
            lasts.as_millis()
        );
        move_to("apart", &both)?;
        tokio::time::sleep(lasts).await;
        move_to("there", &both)?;
        return Ok(Done { told, agent: None, replaced_after: None });
    };
    let machine = &mut match part {
        Part::Server => &mut world.servers,
        Part::Member => &mut world.members,
        Part::Agent => &mut world.agents,
    }[one];
    let agent = (part == Part::Agent).then(|| machine.name());
    if kind.loses_pods() {
        let after = lose(machine, nodes, what == What::Lose).await?;
        let told = format!("{} of {} for {} ms", kind.name(), machine.name(), after.as_millis());
        return Ok(Done { told, agent, replaced_after: Some(after) });
    }
    happen(machine, what, lasts).await?;
    let told = format!("{} of {} for {} ms", kind.name(), machine.name(), lasts.as_millis());
    Ok(Done { told, agent, replaced_after: None })
}

/// Returns how long it took until everything that could be was replaced.
async fn lose(machine: &mut Machine, nodes: &Nodes, kill: bool) -> Result<Duration, Error> {
    let begun = Instant::now();
    if kill {
        machine.kill()?
    } else {
        move_to("apart", &[&*machine])?
    }
    let replaced = nodes.replaced(&machine.name()).await;
    let after = begun.elapsed();
    if kill {
        machine.begin()?
    } else {
        move_to("there", &[&*machine])?
    }
    replaced.map(|()| after)
}

async fn happen(machine: &mut Machine, what: What, lasts: Duration) -> Result<(), Error> {
    match what {
        What::Kill => {
            machine.kill()?;
            tokio::time::sleep(lasts).await;
            machine.begin()
        }
        What::End => {
            machine.signal(SIGTERM)?;
            tokio::time::sleep(lasts).await;
            machine.kill()?;
            machine.begin()
        }
        What::Stop => {
            machine.signal(SIGSTOP)?;
            tokio::time::sleep(lasts).await;
            machine.signal(SIGCONT)
        }
        What::Slow => {
            let until = Instant::now() + lasts;
            while Instant::now() < until {
                machine.signal(SIGSTOP)?;
                tokio::time::sleep(RESTS).await;
                machine.signal(SIGCONT)?;
                tokio::time::sleep(RUNS).await;
            }
            Ok(())
        }
        What::FullDisk => {
            fill(&machine.filler())?;
            tokio::time::sleep(lasts).await;
            std::fs::remove_file(machine.filler())?;
            // etcd ends when it cannot write its log.
            if machine.has_ended() { machine.begin() } else { Ok(()) }
        }
        What::Apart => {
            move_to("apart", &[&*machine])?;
            tokio::time::sleep(lasts).await;
            move_to("there", &[&*machine])
        }
        What::Blind => {
            blind(machine, true)?;
            tokio::time::sleep(lasts).await;
            blind(machine, false)
        }
        What::Lose | What::Strand => Err("a machine is lost until its pods are replaced".into()),
    }
}
