//! `power [--rounds N | --time SECONDS] [--damages N] [--seed S] [--only KIND] [--keep DIR]`: cuts the power under a store, over
//! and over, damages stopped ones, and says what it cost.
//!
//! The store runs in a child process on a disk of the tests' own (see [`disk`]), which forgets what was not flushed. The
//! parent knows what was acknowledged ([`oracle`]) and compares. A seed and the number of rounds before say what a round does;
//! which writer is quicker is left to the machine, so a failure is kept as the disk was before the start that showed it, too.
//! Needs root, for the mount; says so and succeeds where it cannot have it.

mod child;
mod damage;
mod disk;
mod fuse;
mod life;
mod lines;
mod oracle;
mod process;
mod rounds;
mod table;
mod values;

use damage::Outcome;
use life::Life;
use oracle::Fault;
use rand::Rng;
use rounds::Kind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use table::{Damages, Table};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Rounds on one disk before an empty one takes its place; also the damages that are tried on copies of one store.
const LIFE: u64 = 8;
/// Without another number, one store is damaged for so many rounds.
const ROUNDS_PER_DAMAGE: u64 = 5;

struct Settings {
    rounds: u64,
    /// `None`: in proportion to the rounds.
    damages: Option<u64>,
    time: Duration,
    seed: u64,
    keep: PathBuf,
    only: Option<Kind>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((word, rest)) if word == "child" => child::run(rest),
        Some((word, rest)) if word == "repair" => damage::run_repair(rest),
        _ => Settings::from(&arguments).and_then(|settings| parent(&settings)),
    };
    done.unwrap_or_else(|error| {
        eprintln!("power: {error}");
        ExitCode::from(2)
    })
}

impl Settings {
    fn from(arguments: &[String]) -> Result<Self, Error> {
        let mut settings = Self {
            rounds: u64::MAX,
            damages: None,
            time: Duration::MAX,
            seed: rand::rng().random_range(0..1_000_000),
            keep: std::env::temp_dir().join("power-failures"),
            only: None,
        };
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { return Err(format!("{} needs a value", pair[0]).into()) };
            match name.as_str() {
                "--rounds" => settings.rounds = value.parse()?,
                "--damages" => settings.damages = Some(value.parse()?),
                "--time" => settings.time = Duration::from_secs(value.parse()?),
                "--seed" => settings.seed = value.parse()?,
                "--keep" => settings.keep = value.into(),
                "--only" => settings.only = Some(kind(value)?),
                _ => return Err(format!("there is no {name}").into()),
            }
        }
        if settings.rounds == u64::MAX && settings.time == Duration::MAX {
            settings.rounds = 100;
        }
        Ok(settings)
    }
}

fn kind(name: &str) -> Result<Kind, Error> {
    let named = |kind: &Kind| format!("{kind:?}").eq_ignore_ascii_case(name);
    let all = || Kind::ALL.iter().map(|(kind, _)| *kind);
    let names = || all().map(|kind| format!("{kind:?}")).collect::<Vec<_>>().join(", ");
    all().find(named).ok_or_else(|| format!("{name} is none of {}", names()).into())
}

/// Why no disk can be mounted here, if so.
fn lacking() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("mounting a disk needs root".to_owned());
    }
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    device.err().map(|error| format!("/dev/fuse: {error}"))
}

fn parent(settings: &Settings) -> Result<ExitCode, Error> {
    if let Some(why) = lacking() {
        println!("skipped: {why}");
        return Ok(ExitCode::SUCCESS);
    }
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("disk");
    std::fs::create_dir(&path)?;
    let mounted = match fuse::Mounted::new(&path) {
        // In a container, root may be root and still not mount.
        Err(error) if error.downcast_ref() == Some(&nix::errno::Errno::EPERM) => {
            println!("skipped: mounting a disk needs CAP_SYS_ADMIN");
            return Ok(ExitCode::SUCCESS);
        }
        other => other?,
    };
    println!("seed {}", settings.seed);
    let mut run = Run {
        settings,
        begun: Instant::now(),
        dir: dir.path(),
        table: Table::default(),
        damages: Damages::default(),
        rounds: 0,
        acknowledged: 0,
        failed: 0,
    };
    for seed in settings.seed.. {
        if run.wants_damage() {
            run.damages(&mounted, seed)?;
        } else if run.wants_round() {
            run.life(&mounted, seed)?;
        } else {
            break;
        }
    }
    run.print();
    Ok(if run.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Run<'a> {
    settings: &'a Settings,
    begun: Instant,
    dir: &'a Path,
    table: Table,
    damages: Damages,
    rounds: u64,
    acknowledged: u64,
    failed: u64,
}

impl Run<'_> {
    fn is_time(&self) -> bool {
        self.begun.elapsed() < self.settings.time
    }

    fn wants_round(&self) -> bool {
        self.is_time() && self.rounds < self.settings.rounds
    }

    fn wants_damage(&self) -> bool {
        let due = self.rounds / ROUNDS_PER_DAMAGE;
        let wanted = match self.settings.damages {
            Some(all) if !self.wants_round() => all,
            Some(all) => all.min(due),
            None => due,
        };
        self.is_time() && self.damages.count() < wanted
    }

    fn print(&self) {
        self.table.print();
        println!();
        self.damages.print();
        let time = self.begun.elapsed().as_secs_f64();
        println!("\n{} writes acknowledged, {time:.0} s", self.acknowledged);
    }

    fn life(&mut self, mounted: &fuse::Mounted, seed: u64) -> Result<(), Error> {
        let mut life = Life::new(mounted, seed, self.dir.join("stderr"));
        for round in 0..LIFE {
            if !self.wants_round() {
                break;
            }
            let kind = self.choose(&mut life, round);
            let recovery = kind.run(&mut life)?;
            self.rounds += 1;
            let faults = std::mem::take(&mut life.oracle.faults);
            let incidents = std::mem::take(&mut life.oracle.incidents);
            self.table.add(kind, &faults, !incidents.is_empty(), recovery);
            if !faults.is_empty() {
                let again = format!("scripts/power {} {seed}", round + 1);
                self.tell(&life, &format!("{seed}-{round}"), &format!("{kind:?}"), &faults, &again)?;
                break;
            }
        }
        self.acknowledged += life.oracle.acknowledged;
        Ok(())
    }

    fn damages(&mut self, mounted: &fuse::Mounted, seed: u64) -> Result<(), Error> {
        let mut life = Life::new(mounted, seed, self.dir.join("stderr"));
        let whole = damage::stop(&mut life)?;
        let (image, oracle) = (life.image.clone(), life.oracle.clone());
        self.acknowledged += oracle.acknowledged;
        let again = format!("scripts/power 0 {seed} --damages {LIFE}");
        if !whole {
            return self.tell(&life, &format!("{seed}-stop"), "before any damage", &oracle.faults, &again);
        }
        for number in 0..LIFE {
            let case = damage::one(&mut life, &image, &oracle)?;
            self.damages.add(case.target, case.outcome);
            if case.outcome == Outcome::Failed {
                self.tell(&life, &format!("{seed}-damage-{number}"), &case.what, &case.faults, &again)?;
            }
        }
        Ok(())
    }

    fn choose(&self, life: &mut Life<'_>, round: u64) -> Kind {
        if let Some(kind) = self.settings.only {
            return kind;
        }
        if round == 0 && life.rng.random() {
            return Kind::FirstStart;
        }
        let usable = |(kind, _): &&(Kind, u32)| *kind != Kind::FirstStart;
        let total = Kind::ALL.iter().filter(usable).map(|(_, weight)| weight).sum();
        let mut at = life.rng.random_range(0..total);
        for (kind, weight) in Kind::ALL.iter().filter(usable) {
            if at < *weight {
                return *kind;
            }
            at -= weight;
        }
        Kind::Moment
    }

    /// One line, and the disk for a look at it.
    fn tell(
        &mut self,
        life: &Life<'_>,
        name: &str,
        what: &str,
        faults: &[Fault],
        again: &str,
    ) -> Result<(), Error> {
        self.failed += 1;
        let keep = self.settings.keep.join(name);
        life.image.export(&keep)?;
        let (first, count) = (faults.first(), faults.len());
        let (disk, how) = (keep.display(), life.describe());
        let first = first
            .map_or_else(String::new, |fault| format!("{:?}: {}", fault.what, fault.text.replace('\n', " ")));
        println!(
            "FAILED {what}: {first} ({count} faults; {how}); the disk before the start: {disk}; again: {again}"
        );
        Ok(())
    }
}
