//! Writes the seeds of every target to `<dir>/<target>/`: `cargo run --bin seeds -- corpus`.

#[path = "../cel.rs"]
#[allow(dead_code, reason = "its seeds are what is wanted here")]
mod cel;

fn main() -> std::io::Result<()> {
    let dir = std::path::PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "corpus".into()));
    let others = coracle_fuzz::TARGETS.iter().map(|(name, _)| (*name, coracle_fuzz::seeds(name)));
    let texts =
        |seeds: Vec<serde_json::Value>| seeds.iter().map(|seed| seed.to_string().into_bytes()).collect();
    let answers = [
        ("admission_answer", texts(coracle_apiserver::fuzzing::admission_seeds())),
        ("conversion_answer", texts(coracle_apiserver::fuzzing::conversion_seeds())),
        ("request", coracle_apiserver::fuzzing::request_seeds()),
    ];
    for (name, seeds) in others.chain([("cel", cel::seeds())]).chain(answers) {
        let dir = dir.join(name);
        std::fs::create_dir_all(&dir)?;
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
