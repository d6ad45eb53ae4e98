//! Damage of any kind to any file.

use super::*;
use rand::SeedableRng;

/// A young store, one with a checkpoint and a snapshot and commits after them, and one that was closed.
async fn three_stores(count: usize) -> [TempDir; 3] {
    let quick = || Options { vouch_delay: Duration::from_millis(10), ..Options::default() };
    let dirs = [(); 3].map(|()| TempDir::new().unwrap());
    for (kind, dir) in dirs.iter().enumerate() {
        let store = SledStore::open(dir.path(), quick()).unwrap();
        for index in 0..count {
            if kind == 1 && index == count / 2 {
                store.scrub("a snapshot").await.unwrap();
            }
            store.commit(txn(vec![put(&format!("a./n/{index:04}"), bytes_of(1000 + index))])).await.unwrap();
        }
        match kind {
            2 => store.close().await.unwrap(),
            _ => noted(dir.path(), store).await,
        }
    }
    dirs
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let skipped = ["lock", "reserve"];
    let entries = std::fs::read_dir(dir)
        .unwrap()
        .flatten()
        .filter(|entry| !skipped.contains(&&*entry.file_name().to_string_lossy()));
    let mut all: Vec<PathBuf> = entries
        .flat_map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { vec![entry.path()] })
        .collect();
    all.sort();
    all
}

/// Damages one file in the way of a disk or of a person; says how.
fn damage(dir: &Path, random: &mut impl Rng) -> String {
    let files = files(dir);
    let path = &files[random.random_range(0..files.len())];
    let mut bytes = std::fs::read(path).unwrap();
    // Most of a segment and of sled's file is empty.
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
    let at = random.random_range(0..used);
    let page = at / 4096 * 4096..(at / 4096 * 4096 + 4096).min(bytes.len());
    let how = match random.random_range(0..5) {
        0 => {
            bytes[at] ^= 1 << random.random_range(0..8);
            "a flipped bit"
        }
        1 => {
            bytes[page].fill(0);
            "a zeroed page"
        }
        2 => {
            bytes.truncate(at);
            "cut off"
        }
        3 => {
            random.fill(&mut bytes[page]);
            "garbage"
        }
        _ => {
            std::fs::remove_file(path).unwrap();
            return format!("{} removed", path.display());
        }
    };
    std::fs::write(path, bytes).unwrap();
    format!("{}: {how} at {at}", path.display())
}

/// Whatever is damaged: the store has everything, or says that it has not. More rounds with CORACLE_DAMAGES.
#[tokio::test]
async fn no_damage_is_silent() {
    let rounds = std::env::var("CORACLE_DAMAGES").map_or(12, |rounds| rounds.parse().unwrap());
    let count = 40;
    let pristine = three_stores(count).await;
    let (mut harmless, mut refused) = (0, 0);
    for round in 0..rounds {
        let dir = TempDir::new().unwrap();
        let from = pristine[round % 3].path().join(".");
        assert!(Command::new("cp").arg("-a").arg(from).arg(dir.path()).status().unwrap().success());
        let seed = rand::rng().random();
        let how = damage(dir.path(), &mut rand::rngs::StdRng::seed_from_u64(seed));
        println!("round {round}, seed {seed}: {how}");
        match open(dir.path()) {
            Ok(store) => {
                harmless += 1;
                intact(&store, count).await;
            }
            Err(StoreError::Damaged(why)) => {
                refused += 1;
                println!("    refused: {why}");
                assert!(why.contains("coracle db repair"), "{why}");
            }
            Err(other) => panic!("{other}"),
        }
    }
    println!("{harmless} harmless, {refused} refused");
}
