//! `coracle volume move`: asks the server to move a volume, and shows how it goes.

use crate::args::{VolumeAction, VolumeArgs, VolumeMoveArgs};
use crate::kubeconfig::client;
use crate::progress::Progress;
use coracle_storage::moving::{self, Move, Outlook, Spot, Step};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{ListParams, PostParams};
use rand::Rng;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between looks at how far it is.
const LOOK_INTERVAL: Duration = Duration::from_millis(300);
/// How long the old copy is waited for, which goes after everything else.
const REMAINS_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a note of the server's may come in between.
const TRIES: usize = 20;

/// Exit code 0: it was moved, or taken back where that was asked.
pub async fn command(args: VolumeArgs) -> ExitCode {
    let VolumeAction::Move(args) = args.action;
    match Box::pin(run(&args)).await {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("coracle: {why}");
            ExitCode::FAILURE
        }
    }
}

fn said(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => format!("the API does not answer: {}", coracle_api::error::chain(&other)),
    }
}

/// A claim, and where its volume is looked for.
struct ClaimedVolume {
    client: kube::Client,
    volumes: Api<PersistentVolume>,
    /// `<namespace>/<claim>`.
    claim: String,
    volume: String,
}

impl ClaimedVolume {
    async fn of(args: &VolumeMoveArgs) -> Result<Self, String> {
        let client = client(&args.kubeconfig).await?;
        let (namespace, name) = args.claim.split_once('/').unwrap_or((&args.namespace, &args.claim));
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
        let found = claims.get(name).await.map_err(said)?;
        let volume = found.spec.and_then(|spec| spec.volume_name).filter(|name| !name.is_empty());
        let claim = format!("{namespace}/{name}");
        let volume = volume.ok_or_else(|| format!("the claim {claim} has no volume yet"))?;
        Ok(Self { volumes: Api::all(client.clone()), client, claim, volume })
    }

    async fn volume(&self) -> Result<Option<PersistentVolume>, String> {
        self.volumes.get_opt(&self.volume).await.map_err(said)
    }

    async fn node_of(&self, volume: &PersistentVolume) -> Result<String, String> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let nodes = nodes.list(&ListParams::default()).await.map_err(said)?.items;
        moving::node_of(volume, &nodes).ok_or_else(|| {
            format!("the volume {} lies on no node: only volumes of local-path are moved", self.volume)
        })
    }
}

async fn run(args: &VolumeMoveArgs) -> Result<String, String> {
    let asked = ClaimedVolume::of(args).await?;
    let Some(volume) = asked.volume().await? else {
        // It is between its old place and its new one, or lost.
        return follow(&asked, None, args.take_back).await;
    };
    let under_way = Move::of(&volume).filter(Move::holds);
    if args.take_back {
        let state = under_way.ok_or_else(|| format!("the volume of {} is not being moved", asked.claim))?;
        write(&asked, |now| Move { take_back: true, ..now }, &state.id).await?;
        return follow(&asked, Some(&state.id), true).await;
    }
    let node = match &args.to_node {
        Some(node) => node.clone(),
        None => asked.node_of(&volume).await?,
    };
    let to = Spot { node, place: args.to_place.clone().unwrap_or_default() };
    match under_way {
        Some(state) if state.to != to => Err(format!(
            "the volume of {} is being moved to {} already; --take-back leaves it where it is",
            asked.claim,
            shown(&state.to)
        )),
        Some(state) if !args.dry_run => follow(&asked, Some(&state.id), false).await,
        _ => {
            let left = Move::of(&volume).and_then(|state| state.left).map(|left| left.node);
            match left {
                Some(node) => {
                    Err(format!("what the last move has left on node {node} is being removed yet; try again"))
                }
                None => Box::pin(begin(&asked, volume, to, args.dry_run)).await,
            }
        }
    }
}

async fn begin(
    asked: &ClaimedVolume,
    volume: PersistentVolume,
    to: Spot,
    dry_run: bool,
) -> Result<String, String> {
    // The server looks again, when nobody can begin to use it any more.
    let outlook = moving::look(&asked.client, volume.clone(), &to).await?;
    if dry_run {
        return Ok(would(asked, &volume, &outlook));
    }
    let id = format!("{:016x}", rand::rng().random::<u64>());
    let wanted = Move::new(id.clone(), to).on(volume);
    asked.volumes.replace(&asked.volume, &PostParams::default(), &wanted).await.map_err(said)?;
    follow(asked, Some(&id), false).await
}

fn shown(spot: &Spot) -> String {
    match spot.place.as_str() {
        "" => format!("node {}", spot.node),
        place => format!("@{place} of node {}", spot.node),
    }
}

fn would(asked: &ClaimedVolume, volume: &PersistentVolume, outlook: &Outlook) -> String {
    let path =
        volume.spec.as_ref().and_then(|spec| spec.host_path.as_ref()).map(|source| source.path.as_str());
    let (route, contents) = (&outlook.route, outlook.contents);
    format!(
        "would move the volume {} of {}: {} ({})\nfrom {} on node {}\nto   {} on node {}",
        asked.volume,
        asked.claim,
        files(contents.files),
        mib(contents.bytes),
        path.unwrap_or_default(),
        route.from.node,
        route.path().display(),
        route.to.node
    )
}

fn files(count: u64) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

fn mib(bytes: u64) -> String {
    format!("{}.{} MiB", bytes >> 20, ((bytes >> 10) & 1023) * 10 / 1024)
}

/// Changes what the volume says of this move, whatever the server writes meanwhile.
async fn write(asked: &ClaimedVolume, change: impl Fn(Move) -> Move, id: &str) -> Result<(), String> {
    for _ in 0..TRIES {
        let Some(volume) = asked.volume().await? else { return Ok(()) };
        let Some(state) = Move::of(&volume).filter(|state| state.id == id && state.holds()) else {
            return Ok(());
        };
        let changed = change(state).on(volume);
        match asked.volumes.replace(&asked.volume, &PostParams::default(), &changed).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            written => return written.map(drop).map_err(said),
        }
    }
    Err("the volume changes all the time; try again".to_owned())
}

/// Waits for the end of a move, whoever began it.
async fn follow(asked: &ClaimedVolume, id: Option<&str>, take_back: bool) -> Result<String, String> {
    let (mut progress, mut told) = (None, String::new());
    let (mut counted, mut absent, mut ended) = (0, None::<Instant>, None::<Instant>);
    loop {
        let volume = asked.volume().await?;
        let Some(state) = volume.as_ref().map(Move::of) else {
            // Made anew, it is there again within milliseconds where the server runs.
            if absent.get_or_insert_with(Instant::now).elapsed() > REMAINS_TIMEOUT {
                return Err(format!("there is no volume {}; is the server running?", asked.volume));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
            continue;
        };
        let state = state.filter(|state| id.is_none_or(|id| id == state.id));
        let state = state.ok_or_else(|| format!("somebody else moves the volume of {} now", asked.claim))?;
        if !state.message.is_empty() && state.holds() && state.message != told {
            eprintln!("coracle: waiting: {}", state.message);
            told = state.message.clone();
        }
        match state.step {
            Step::Refused if take_back => return Ok(format!("{} stays where it was", asked.claim)),
            Step::Refused => return Err(format!("{} was not moved: {}", asked.claim, state.message)),
            Step::Moved if state.left.is_none() => return Ok(moved(asked, &state)),
            Step::Moved if ended.get_or_insert_with(Instant::now).elapsed() > REMAINS_TIMEOUT => {
                let node = state.left.as_ref().map(|left| left.node.clone()).unwrap_or_default();
                return Ok(format!("{}\nthe old copy goes once node {node} answers", moved(asked, &state)));
            }
            Step::Copying => {
                let what = || format!("moving {} to {}", asked.claim, shown(&state.to));
                let line = progress.get_or_insert_with(|| Progress::new(what(), Some(state.total_bytes)));
                // An attempt that begins anew counts from the beginning.
                let more = state.sent_bytes.saturating_sub(counted);
                counted += more;
                line.count(usize::try_from(more).unwrap_or(usize::MAX));
            }
            _ => {}
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

fn moved(asked: &ClaimedVolume, state: &Move) -> String {
    let written = state.written.clone().unwrap_or_default();
    let mut said = format!(
        "moved {} to {}: {} ({}), compared with what was sent",
        asked.claim,
        shown(&state.to),
        files(written.files),
        mib(written.bytes)
    );
    if written.left_out > 0 {
        let more = if written.left_out > written.named.len() as u64 { ", ..." } else { "" };
        let names = written.named.join(", ");
        said += &format!(
            "\nleft out, for they are of no use elsewhere: {} sockets, pipes or devices ({names}{more})",
            written.left_out
        );
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_places_are_shown_as_people_read_them() {
        assert_eq!(
            (mib(0), mib(3 << 20), mib((5 << 20) + (512 << 10))),
            ("0.0 MiB".into(), "3.0 MiB".into(), "5.5 MiB".into())
        );
        assert_eq!((files(1), files(2)), ("1 file".to_owned(), "2 files".to_owned()));
        let spot = |place: &str| Spot { node: "two".to_owned(), place: place.to_owned() };
        assert_eq!(
            (shown(&spot("")), shown(&spot("big"))),
            ("node two".to_owned(), "@big of node two".to_owned())
        );
    }
}
