//! Single requests that ask for more work than they look like.

use super::Error;
use super::wire::Target;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// A request, and the status and words that it is to be refused with; no words where the connection may just end.
pub struct Bomb {
    pub name: &'static str,
    pub method: &'static str,
    pub path: String,
    pub head: String,
    pub body: Vec<u8>,
    pub refused: &'static [u16],
    pub words: &'static str,
}

/// Where the audit log reads bodies too.
const CONFIG_MAPS: &str = "/api/v1/namespaces/request/configmaps";

/// Longest until a request is refused; a build without optimisation reads 3 MiB of YAML in some seconds.
const REFUSED_WITHIN: Duration = Duration::from_secs(15);

fn post(name: &'static str, kind: &str, body: Vec<u8>, refused: &'static [u16], words: &'static str) -> Bomb {
    let head = format!("content-type: {kind}\r\n");
    Bomb { name, method: "POST", path: CONFIG_MAPS.to_owned(), head, body, refused, words }
}

fn get(name: &'static str, path: String, head: String, refused: &'static [u16]) -> Bomb {
    Bomb { name, method: "GET", path, head, body: Vec::new(), refused, words: "" }
}

/// Ten of the anchor before, so many times over.
fn laughs(levels: usize) -> String {
    let mut text = "l0: &l0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for level in 1..=levels {
        let before = format!("*l{}", level - 1);
        let _ = writeln!(text, "l{level}: &l{level} [{}]", [before.as_str(); 10].join(", "));
    }
    text
}

/// 1.3 MiB that stand for 64 MiB.
fn copies() -> String {
    format!(
        "kind: ConfigMap\napiVersion: v1\nbig: &a {}\nlist:\n{}",
        "x".repeat(1_300_000),
        "- *a\n".repeat(50)
    )
}

/// What says that it is packed. Nothing here is ever unpacked, so it is JSON that begins wrongly.
fn packed() -> Vec<u8> {
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    gzip.extend(std::iter::repeat_n(0xed, 10_240));
    gzip
}

pub fn bombs() -> Vec<Bomb> {
    let deep = |open: &str, count: usize| open.repeat(count).into_bytes();
    let yaml = "application/yaml";
    let json = "application/json";
    let aliases = "document contains excessive aliasing";
    let queries = (0..6_000).fold(String::new(), |text, n| text + "&labelSelector=a" + &n.to_string());
    let headers = |count: usize| (0..count).fold(String::new(), |text, n| text + &format!("x-{n}: {n}\r\n"));
    vec![
        post("YAML of many levels", yaml, laughs(9).into_bytes(), &[400], aliases),
        post("YAML of long copies", yaml, copies().into_bytes(), &[400], aliases),
        post("deep YAML", yaml, deep("- ", 500_000), &[400], ""),
        post("deep YAML in brackets", yaml, deep("[", 1_000_000), &[400], ""),
        post("deep JSON", json, deep("{\"a\":", 500_000), &[400], ""),
        post("long JSON", json, vec![b' '; 4 << 20], &[413, 0], ""),
        post("wide JSON", json, [b"[".as_slice(), &b"{},".repeat(1_000_000), b"{}]"].concat(), &[400], ""),
        Bomb {
            head: format!("content-type: {json}\r\ncontent-encoding: gzip\r\n"),
            ..post("packed JSON", json, packed(), &[400, 415], "")
        },
        get("a long head", "/version".to_owned(), format!("x-long: {}\r\n", "a".repeat(900_000)), &[431, 0]),
        get("many headers", "/version".to_owned(), headers(5_000), &[431, 0]),
        get(
            "many query parameters",
            format!("{CONFIG_MAPS}?limit=1{}", &queries[..60_000]),
            String::new(),
            &[400, 200, 414],
        ),
        get("a long path", format!("/{}", "a".repeat(100_000)), String::new(), &[414, 431, 0]),
    ]
}

/// Sends each once, in order. The mistakes: what was not refused as it is to be.
pub async fn send(target: &Target, bombs: &[Bomb]) -> Result<(String, Vec<String>), Error> {
    let mut wrong = Vec::new();
    for bomb in bombs {
        let mut connection = target.http1().await?;
        let began = Instant::now();
        let sent = connection.send(bomb.method, &bomb.path, &bomb.head, &bomb.body).await;
        let (status, text) = sent.unwrap_or_default();
        let took = began.elapsed();
        if !bomb.refused.contains(&status) || !text.contains(bomb.words) || took > REFUSED_WITHIN {
            wrong.push(format!(
                "{}: {status} after {took:?} {}",
                bomb.name,
                text.chars().take(300).collect::<String>()
            ));
        }
    }
    Ok((format!("{} sent", bombs.len()), wrong))
}

/// All of them again and again on so many connections at once.
pub async fn storm(target: &Target, rounds: usize, at_once: usize) -> Result<(String, ()), Error> {
    let bombs = bombs();
    for _ in 0..rounds {
        futures::future::try_join_all((0..at_once).map(|_| send(target, &bombs))).await?;
    }
    Ok((format!("{} bombs", rounds * at_once * bombs.len()), ()))
}
