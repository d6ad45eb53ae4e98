//! What chance does to what was not flushed.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Each cut has its own shares: disks lose next to everything, or next to nothing, or what you would not expect.
const KEPT: [f64; 6] = [0.0, 0.1, 0.5, 0.5, 0.9, 1.0];
const TORN: [f64; 4] = [0.0, 0.05, 0.3, 0.9];

#[derive(Debug)]
pub struct Luck {
    rng: SmallRng,
    kept: f64,
    torn: f64,
}

impl Luck {
    pub fn new(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (kept, torn) = (KEPT[rng.random_range(0..KEPT.len())], TORN[rng.random_range(0..TORN.len())]);
        Self { rng, kept, torn }
    }

    pub fn keeps(&mut self) -> bool {
        self.rng.random_bool(self.kept)
    }

    pub fn tears(&mut self) -> bool {
        self.rng.random_bool(self.torn)
    }

    pub fn half(&mut self) -> bool {
        self.rng.random()
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.rng.random_range(0..n)
    }
}
