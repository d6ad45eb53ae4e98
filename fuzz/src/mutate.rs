//! Inputs for fuzz targets where no fuzzer runs: seeds changed at random, in the same order every time.

/// xorshift: <https://www.jstatsoft.org/article/view/v008i14>.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`, which counts as 1 if it is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).expect("below a usize")
    }
}

/// One of the seeds, changed in one to five places; `words` are what tends to make the reader stumble.
pub fn mutated(random: &mut Random, seeds: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(5) {
        let at = random.below(bytes.len() + 1);
        match random.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = u8::try_from(random.below(256)).expect("below 256"),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..(at + random.below(12)).min(bytes.len()))),
            4 => {
                let word = words[random.below(words.len())].as_bytes();
                bytes.splice(at..at, word.iter().copied());
            }
            5 => {
                let end = (at + random.below(60)).min(bytes.len());
                let piece = bytes[at..end].repeat(1 + random.below(3));
                bytes.splice(at..at, piece);
            }
            _ => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len() + 1);
                bytes.splice(at.., other[from..].iter().copied());
            }
        }
    }
    bytes
}
