//! Writes the seeds of every target to `<dir>/<target>/`: `cargo run --bin seeds -- corpus`.

fn main() -> std::io::Result<()> {
    let dir = std::path::PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "corpus".into()));
    for (name, _) in coracle_fuzz::TARGETS {
        let dir = dir.join(name);
        std::fs::create_dir_all(&dir)?;
        for (number, seed) in coracle_fuzz::seeds(name).iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
