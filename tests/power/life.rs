//! One disk with one store through some rounds: started, written to, cut off, started again and judged.

use crate::Error;
use crate::child::Task;
use crate::disk::{Image, Luck, Plan};
use crate::fuse::Mounted;
use crate::lines::Line;
use crate::oracle::{Fault, Oracle, What};
use crate::process::{Heard, Process};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A start that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);
/// Flushes of a virtual disk, flash with a cache, and a slow card.
const FLUSHES: [u64; 5] = [0, 0, 200, 1000, 4000];
/// Writers of a start.
const WRITERS: [u64; 4] = [1, 8, 8, 64];
/// The longest value of a start: many small ones, some of all sizes, a few large ones.
const LONGEST: [u64; 3] = [600, 60_000, 400_000];
/// Keys of each class.
const SLOTS: u64 = 96;

/// How a start ended.
#[derive(Debug)]
pub enum Started {
    Checked,
    /// The plan came true before that.
    Stopped,
    Not(String),
}

pub struct Life<'a> {
    pub mounted: &'a Mounted,
    pub rng: SmallRng,
    pub task: Task,
    pub oracle: Oracle,
    /// What the last start found.
    pub image: Image,
    process: Option<Process>,
    stderr: PathBuf,
}

impl<'a> Life<'a> {
    pub fn new(mounted: &'a Mounted, seed: u64, stderr: PathBuf) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let task = Task {
            dir: mounted.path.join("store"),
            seed,
            writers: 1,
            slots: SLOTS,
            longest: 0,
            busy: rng.random(),
            number: 0,
        };
        let mut disk = mounted.shared.disk.lock();
        disk.files_sync_names = rng.random();
        disk.load(&Image::default());
        drop(disk);
        mounted.shared.renew(Luck::new(rng.random()));
        let (oracle, image) = (Oracle::default(), Image::default());
        let mut life = Self { mounted, rng, task, oracle, image, process: None, stderr };
        life.vary();
        life
    }

    /// Lets the next child write otherwise than the last one.
    pub fn vary(&mut self) {
        let longest = LONGEST[self.rng.random_range(0..LONGEST.len())];
        let flush = FLUSHES[self.rng.random_range(0..FLUSHES.len())];
        let writers = WRITERS[self.rng.random_range(0..WRITERS.len())];
        self.write(writers, longest, flush);
    }

    pub fn write(&mut self, writers: u64, longest: u64, flush_micros: u64) {
        (self.task.writers, self.task.longest) = (writers, longest);
        *self.mounted.shared.flush.lock() = Duration::from_micros(flush_micros);
    }

    pub fn describe(&self) -> String {
        let Task { writers, longest, busy, .. } = &self.task;
        let flush = *self.mounted.shared.flush.lock();
        let names = if self.mounted.shared.disk.lock().files_sync_names { "files" } else { "directories" };
        let limits = if *busy { "small" } else { "the server's" };
        format!(
            "{writers} writers, values up to {longest}, {limits} limits, flushes of {flush:?}, names synced by {names}"
        )
    }

    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    pub fn plan(&self, plan: Plan) {
        self.mounted.shared.disk.lock().plan = Some(plan);
    }

    // ---- the child

    /// Starts the child and hears what it found.
    pub fn start(&mut self) -> Result<Started, Error> {
        self.task.number = self.oracle.newest_number();
        self.process = Some(Process::start(&self.task, &self.stderr)?);
        let begun = Instant::now();
        loop {
            match self.hear()? {
                Heard::Line(Line::Checked) => return Ok(Started::Checked),
                Heard::Line(Line::NotOpened(why)) if !self.stopped() => return Ok(Started::Not(why)),
                Heard::Line(_) => {}
                _ if self.stopped() => return Ok(Started::Stopped),
                Heard::End => return Ok(Started::Not(format!("it ended: {}", self.last_words()))),
                Heard::Nothing if begun.elapsed() > PATIENCE => {
                    return Ok(Started::Not(format!("it is not up after {PATIENCE:?}")));
                }
                Heard::Nothing => {}
            }
        }
    }

    /// Starts a child that nothing is to happen to; says how long it took, or adds a fault.
    pub fn open(&mut self) -> Result<Option<Duration>, Error> {
        match self.start()? {
            Started::Checked => Ok(self.oracle.ready.map(Duration::from_micros)),
            Started::Not(why) => {
                self.oracle.faults.push(Fault { what: What::NotStarted, text: why });
                Ok(None)
            }
            Started::Stopped => Err("a plan came true that nobody made".into()),
        }
    }

    fn last_words(&self) -> String {
        std::fs::read_to_string(&self.stderr).unwrap_or_default().replace('\n', " ")
    }

    pub fn stopped(&self) -> bool {
        self.mounted.shared.disk.lock().stopped
    }

    fn hear(&mut self) -> Result<Heard, Error> {
        let heard = self.process.as_ref().ok_or("no child")?.hear(LOOK);
        if let Heard::Line(line) = &heard {
            self.oracle.hear(line.clone());
        }
        Ok(heard)
    }

    /// Lets the child write.
    pub fn go(&mut self) {
        let Task { writers, longest, .. } = self.task;
        if let Some(process) = &mut self.process {
            process.say(&format!("go {writers} {longest}"));
        }
    }

    /// Hears the child until the plan comes true, and makes it come true when the time is up.
    pub fn until_stopped(&mut self, within: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        while !self.stopped() {
            let heard = self.hear()?;
            if matches!(heard, Heard::End) {
                let text = format!("it ended by itself: {}", self.last_words());
                self.oracle.faults.push(Fault { what: What::Corrupt, text });
                self.mounted.shared.stop();
            }
            if begun.elapsed() > within {
                self.mounted.shared.stop();
            }
        }
        Ok(())
    }

    /// Hears the child for so long.
    pub fn hear_for(&mut self, time: Duration) -> Result<(), Error> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            if matches!(self.hear()?, Heard::End) {
                break;
            }
        }
        Ok(())
    }

    /// Ends the child as the power or `kill -9` does, and hears what it told before.
    fn end(&mut self) -> Result<(), Error> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        process.kill();
        self.mounted.shared.release();
        process.wait()?;
        while let Heard::Line(line) = process.hear(PATIENCE) {
            self.oracle.hear(line);
        }
        Ok(())
    }

    /// The power goes: everything that was not flushed is left to luck.
    pub fn cut(&mut self) -> Result<(), Error> {
        self.mounted.shared.stop();
        self.end()?;
        let mut luck = Luck::new(self.rng.random());
        let image = self.mounted.shared.disk.lock().cut(&mut luck);
        self.load(image);
        Ok(())
    }

    /// The process goes and the disk stays.
    pub fn kill(&mut self) -> Result<(), Error> {
        self.end()?;
        let mut disk = self.mounted.shared.disk.lock();
        disk.plan = None;
        disk.failing.clear();
        disk.limit = None;
        disk.stopped = false;
        self.image = disk.image();
        drop(disk);
        self.mounted.shared.renew(Luck::new(self.rng.random()));
        Ok(())
    }

    /// Stops the store as the server does, and switches the disk off.
    pub fn close(&mut self) -> Result<(), Error> {
        let Some(process) = &mut self.process else { return Ok(()) };
        process.say("stop");
        let begun = Instant::now();
        while !matches!(self.hear()?, Heard::End) {
            if begun.elapsed() > PATIENCE {
                return Err("the child does not stop".into());
            }
        }
        self.process = None;
        let image = self.mounted.shared.disk.lock().image();
        self.load(image);
        Ok(())
    }

    /// Puts another disk in. No child may be running.
    pub fn load(&mut self, image: Image) {
        self.mounted.shared.disk.lock().load(&image);
        self.image = image;
        self.mounted.shared.renew(Luck::new(self.rng.random()));
    }
}

impl Drop for Life<'_> {
    fn drop(&mut self) {
        self.mounted.shared.stop();
        let _ = self.end();
    }
}
