//! Faults on demand, in builds with debug assertions alone: tests have the real components panic, hang, lose a lock and
//! leak tasks. `CORACLE_FAULTS` names a file of lines `COMPONENT FAULT`; the first run that finds its line takes it away.

use futures::future;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::fs;
use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

/// How often the file is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Two components may look at once.
static FILE: Mutex<()> = Mutex::new(());

/// Runs `run` until a fault is asked for.
pub async fn around<R: Future>(name: &'static str, run: R) -> R::Output {
    let Some(file) = std::env::var_os("CORACLE_FAULTS") else { return run.await };
    let asked = pin!(async {
        loop {
            if let Some(fault) = take(Path::new(&file), name) {
                return fault;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    });
    let mut run = pin!(run);
    let fault = tokio::select! {
        outcome = &mut run => return outcome,
        fault = asked => fault,
    };
    match happen(&fault).await {}
}

fn take(file: &Path, name: &str) -> Option<String> {
    let _alone = FILE.lock();
    let text = fs::read_to_string(file).ok()?;
    let fault = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?.to_owned();
    let rest: Vec<&str> = text.lines().filter(|line| *line != format!("{name} {fault}")).collect();
    fs::write(file, rest.join("\n")).ok()?;
    Some(fault)
}

async fn happen(fault: &str) -> Infallible {
    use coracle_client::beat::{self, Patience};
    match fault {
        "hang" => beat::working(Patience::Usual, future::pending()).await,
        "lock" => {
            let lock = Mutex::new(());
            let _held = lock.lock();
            let _never = lock.lock();
            unreachable!()
        }
        "leak" => {
            for _ in 0..10_000 {
                drop(beat::spawn("leaked", future::pending::<()>()));
            }
            std::panic::resume_unwind(Box::new("asked to leak"))
        }
        // A panic that is not printed: what is printed is taken for one that nobody asked for.
        other => std::panic::resume_unwind(Box::new(format!("asked to {other}"))),
    }
}
