//! `coracle cert revoke`: a certificate that is taken back before its end.

use super::found::{Found, in_file};
use super::revoked::{self, Entry};
use jiff::Timestamp;
use std::path::Path;

/// Takes back one certificate by its fingerprint, or those of a file; with `admin` those of the kubeconfig itself.
pub async fn run(certificate: Option<String>, admin: bool, kubeconfig: &Path) -> Result<(), String> {
    let now = Timestamp::now();
    let entries = match certificate {
        Some(text) => match fingerprint(&text) {
            Some(fingerprint) => vec![(fingerprint, Entry::unknown(now))],
            None => of_file(Path::new(&text), now)?,
        },
        None if admin => of_file(kubeconfig, now)?,
        None => return Err("say which: a fingerprint, a file, or --admin".to_owned()),
    };
    let client = crate::kubeconfig::client(kubeconfig).await?;
    revoked::add(client, &entries, now).await?;
    for (fingerprint, entry) in &entries {
        println!("revoked {fingerprint} {}", entry.subject);
    }
    Ok(())
}

/// As `coracle cert check` shows it, as openssl does (`AB:CD:...`), or as a request's credential id.
fn fingerprint(text: &str) -> Option<String> {
    let text = text.strip_prefix("X509SHA256=").unwrap_or(text);
    let hex: String = text.chars().filter(|c| *c != ':').collect::<String>().to_ascii_lowercase();
    (hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit())).then_some(hex)
}

fn of_file(path: &Path, now: Timestamp) -> Result<Vec<(String, Entry)>, String> {
    let entry = |found: Found| {
        let failed = |why: &str| Err(format!("{}: {} {why}", path.display(), found.subject));
        if found.is_authority {
            return failed("is an authority: whom it has signed is not revoked by this");
        }
        if found.is_over(now) {
            return failed("is over already");
        }
        Ok((found.fingerprint.clone(), Entry::of(&found, now)))
    };
    in_file(path)?.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_come_in_three_forms() {
        let plain = "ab".repeat(32);
        let colons = ["AB"; 32].join(":");
        for text in [plain.clone(), colons, format!("X509SHA256={plain}")] {
            assert_eq!(fingerprint(&text), Some(plain.clone()), "{text}");
        }
        assert_eq!((fingerprint("admin.crt"), fingerprint(&"zz".repeat(32))), (None, None));
    }
}
