//! `coracle cert check`: every certificate of the data directory and of kubeconfigs.

use super::found::{Found, in_file};
use crate::settings::admin_conf;
use crate::table::{left, table};
use jiff::Timestamp;
use std::path::{Path, PathBuf};

/// The error says how many are over or cannot be read.
pub fn run(data_dir: &Path, kubeconfigs: &[PathBuf]) -> Result<(), String> {
    let mut files = in_directory(&data_dir.join("pki"))?;
    let usual = admin_conf(data_dir);
    files.extend(if kubeconfigs.is_empty() && usual.exists() { vec![usual] } else { kubeconfigs.to_vec() });
    let now = Timestamp::now();
    let mut rows = vec![["FILE", "SUBJECT", "CA", "EXPIRES", "LEFT", "FINGERPRINT"].map(str::to_owned)];
    let mut bad = 0;
    for file in files {
        match in_file(&file) {
            Ok(all) => {
                bad += all.iter().filter(|found| found.is_over(now)).count();
                rows.extend(all.iter().map(|found| row(&file, found, now)));
            }
            Err(why) => {
                bad += 1;
                eprintln!("coracle: {why}");
            }
        }
    }
    print!("{}", table(&rows));
    if bad == 0 { Ok(()) } else { Err(format!("{bad} of the certificates are over or cannot be read")) }
}

/// Certificates only: keys beside them have other names, or stand behind them in the same file.
pub fn in_directory(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", dir.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if !hidden && path.extension().is_some_and(|ending| ending == "crt" || ending == "pem") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn row(file: &Path, found: &Found, now: Timestamp) -> [String; 6] {
    let remaining =
        if found.is_over(now) { "<over>".to_owned() } else { left(found.not_after.duration_since(now)) };
    [
        file.display().to_string(),
        found.subject.clone(),
        found.issuer.clone(),
        found.not_after.strftime("%FT%TZ").to_string(),
        remaining,
        found.fingerprint.clone(),
    ]
}
