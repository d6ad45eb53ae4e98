//! Volumes of local-path that are moved, whatever is killed in between.

use crate::cluster::{
    Cluster, claim, cluster, cluster_without_provisioner, far_node, is_bound, local_path, nothing_is_open,
    phase, selected, volume,
};
use crate::support::{until, until_gone, until_object};
use async_trait::async_trait;
use coracle_api::storage::MOVE;
use coracle_client::{Context, Informers};
use coracle_storage::incoming::in_pieces;
use coracle_storage::moving::{ByteStream, Carrier, Move, Spot, Step, look};
use coracle_storage::run_local_path;
use coracle_storage::transfer::{Contents, NodeVolumes, TransferError, Wanted, Written};
use coracle_storage::volumes::LinuxMounter;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, PersistentVolume, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio_util::sync::CancellationToken;

/// The nodes' kubelets, without the way to them.
struct Kubelets {
    nodes: BTreeMap<&'static str, NodeVolumes>,
    /// A stream stops in the middle, and goes on for nobody.
    stuck: AtomicBool,
    /// The next copies end in the middle.
    cut: AtomicUsize,
}

impl Kubelets {
    fn of(roots: [(&'static str, PathBuf); 2]) -> Arc<Self> {
        let volumes = |root| NodeVolumes::new(root, Arc::new(LinuxMounter));
        let nodes = roots.map(|(name, root)| (name, volumes(root))).into();
        Arc::new(Self { nodes, stuck: AtomicBool::default(), cut: AtomicUsize::default() })
    }
}

#[async_trait]
impl Carrier for Kubelets {
    async fn look(&self, node: &str, directory: &str) -> Result<Contents, TransferError> {
        self.nodes[node].look(directory).await
    }

    async fn read(&self, node: &str, directory: &str) -> Result<ByteStream, TransferError> {
        let whole = self.nodes[node].read(directory);
        if self.stuck.load(Ordering::SeqCst) {
            return Ok(whole.take(1).chain(futures::stream::pending()).boxed());
        }
        let cut = self.cut.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        Ok(if cut.is_ok() { whole.take(1).boxed() } else { whole.boxed() })
    }

    async fn write(&self, node: &str, wanted: &Wanted, stream: ByteStream) -> Result<Written, TransferError> {
        let node = &self.nodes[node];
        let attempt = node.begin(wanted.clone());
        let (mut pieces, mut number) = (std::pin::pin!(in_pieces(stream)), 0);
        while let Some(piece) = pieces.next().await {
            node.piece(&attempt, number, piece.unwrap()).await?;
            number += 1;
        }
        node.end(&attempt).await
    }
}

/// A cluster of the nodes n and far, and a claim with data on n.
struct Scene {
    cluster: Cluster,
    kubelets: Arc<Kubelets>,
    volume: String,
    far: PathBuf,
}

const TREASURE: &str = "gold";

async fn scene() -> Scene {
    let cluster = cluster_without_provisioner(|_| None).await;
    let far = cluster.root.path().join("far");
    let own = cluster.root.path().join("volumes");
    let namespaces: Api<Namespace> = Api::all(cluster.world.admin());
    if namespaces.get_opt("kube-system").await.unwrap().is_none() {
        cluster.world.create(&namespaces, json!({ "metadata": { "name": "kube-system" } })).await;
    }
    far_node(&cluster.world, far.clone()).await;
    let kubelets = Kubelets::of([("n", own.clone()), ("far", far.clone())]);
    let nodes: Api<Node> = Api::all(cluster.world.admin());
    let annotations = json!({ "metadata": { "annotations": { "coracle.io/local-path-root": own } } });
    nodes.patch("n", &Default::default(), &Patch::Merge(annotations)).await.unwrap();
    let provisioner = Provisioner::start(&cluster, &kubelets, cluster.world.admin());
    cluster.world.create(&cluster.claims, claim("local-path", "1Gi")).await;
    cluster.claims.patch("data", &Default::default(), &selected("n")).await.unwrap();
    let bound = until_object("bound", &cluster.claims, "data", is_bound).await;
    let volume = bound.spec.unwrap().volume_name.unwrap();
    until_object("bound", &cluster.volumes, &volume, phase("Bound")).await;
    let scene = Scene { cluster, kubelets, volume, far };
    std::fs::create_dir(scene.path().await.join("d")).unwrap();
    std::fs::write(scene.path().await.join("d/treasure"), TREASURE).unwrap();
    std::fs::write(scene.path().await.join("much"), vec![7; 2 << 20]).unwrap();
    provisioner.end().await;
    scene
}

/// The server's part, which can be killed.
struct Provisioner {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Provisioner {
    fn start(cluster: &Cluster, kubelets: &Arc<Kubelets>, client: kube::Client) -> Self {
        let stop = CancellationToken::new();
        let informers = Informers::new(cluster.world.admin(), stop.clone());
        let context = Context { client, informers, stop: stop.clone() };
        let config = local_path(cluster, Some(kubelets.clone() as Arc<dyn Carrier>));
        let task = tokio::spawn(async move { drop(run_local_path(context, config).await) });
        Self { stop, task }
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

impl Scene {
    fn provisioner(&self) -> Provisioner {
        Provisioner::start(&self.cluster, &self.kubelets, self.cluster.world.admin())
    }

    async fn ask(&self, id: &str, node: &str, place: &str) {
        let to = Spot { node: node.to_owned(), place: place.to_owned() };
        let volume = self.cluster.volumes.get(&self.volume).await.unwrap();
        let wanted = Move::new(id.to_owned(), to).on(volume);
        self.cluster.volumes.replace(&self.volume, &PostParams::default(), &wanted).await.unwrap();
    }

    /// Until the move has ended, and what it left is gone.
    async fn ended(&self, id: &str) -> (PersistentVolume, Move) {
        let of =
            |volume: &PersistentVolume| Move::of(volume).filter(|state| state.id == id && !state.is_open());
        let volume = until_object("moved or not", &self.cluster.volumes, &self.volume, |volume| {
            of(volume).is_some() && phase("Bound")(volume)
        })
        .await;
        let state = of(&volume).unwrap();
        (volume, state)
    }

    /// Where the volume says that it lies.
    async fn path(&self) -> PathBuf {
        let volume = self.cluster.volumes.get(&self.volume).await.unwrap();
        volume.spec.unwrap().host_path.unwrap().path.into()
    }

    /// The claim has its volume, which lies there whole and nowhere else.
    async fn is_whole_at(&self, root: &Path) {
        let claim = self.cluster.claims.get("data").await.unwrap();
        assert!(is_bound(&claim), "{:?}", claim.status);
        assert_eq!(claim.spec.as_ref().unwrap().volume_name.as_ref(), Some(&self.volume));
        let path = self.path().await;
        assert_eq!(path.parent(), Some(root));
        assert_eq!(std::fs::read_to_string(path.join("d/treasure")).unwrap(), TREASURE);
        assert_eq!(std::fs::read(path.join("much")).unwrap(), vec![7; 2 << 20]);
        let name = path.file_name().unwrap();
        let places = [self.cluster.root.path().join("volumes"), self.far.clone(), self.far.join("@big")];
        for other in places.iter().filter(|place| *place != root) {
            assert!(!other.join(name).exists(), "nothing is left in {}", other.display());
        }
        let names = |root: &Path| {
            std::fs::read_dir(root).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>()
        };
        assert!(
            names(root).iter().all(|name| !name.to_string_lossy().starts_with(".new-")),
            "{:?}",
            names(root)
        );
        until_gone("the journal", &self.journals(), &format!("volume-move-{}", self.volume)).await;
        until_object("unmarked", &self.cluster.claims, "data", |claim| {
            !claim.annotations().contains_key("coracle.io/volume-moving")
        })
        .await;
    }

    fn journals(&self) -> Api<ConfigMap> {
        Api::namespaced(self.cluster.world.admin(), "kube-system")
    }
}

#[tokio::test]
async fn a_volume_moves_with_its_data_and_its_claim_stays_bound() {
    let scene = scene().await;
    let _provisioner = scene.provisioner();
    let before = scene.cluster.claims.get("data").await.unwrap();
    let old = scene.cluster.volumes.get(&scene.volume).await.unwrap();
    scene.ask("1", "far", "").await;
    let (volume, state) = scene.ended("1").await;
    assert_eq!((state.step, state.message.as_str()), (Step::Moved, ""));
    assert_eq!(state.written.unwrap().files, 3);
    scene.is_whole_at(&scene.far).await;
    assert_ne!(volume.uid(), old.uid());
    assert_eq!(volume.spec.as_ref().unwrap().capacity, old.spec.as_ref().unwrap().capacity);
    let after = scene.cluster.claims.get("data").await.unwrap();
    assert_eq!((after.uid(), after.spec), (before.uid(), before.spec));
    let events: Vec<Event> = scene
        .cluster
        .world
        .in_namespace::<Event>("default")
        .list(&ListParams::default())
        .await
        .unwrap()
        .items;
    assert!(events.iter().all(|event| event.reason.as_deref() != Some("ClaimLost")), "{events:?}");
    let nodes: Api<Node> = Api::all(scene.cluster.world.admin());
    until_object("clean", &nodes, "far", nothing_is_open).await;

    // To another disk of the node, and back.
    std::fs::create_dir(scene.far.join("@big")).unwrap();
    scene.ask("2", "far", "big").await;
    assert_eq!(scene.ended("2").await.1.step, Step::Moved);
    scene.is_whole_at(&scene.far.join("@big")).await;
    scene.ask("3", "n", "").await;
    assert_eq!(scene.ended("3").await.1.step, Step::Moved);
    scene.is_whole_at(&scene.cluster.root.path().join("volumes")).await;
    // What is deleted afterwards goes, wherever it lies.
    scene.cluster.claims.delete("data", &DeleteParams::default()).await.unwrap();
    until_gone("the volume", &scene.cluster.volumes, &scene.volume).await;
    assert_eq!(std::fs::read_dir(scene.cluster.root.path().join("volumes")).unwrap().count(), 0);
    until_object("clean", &nodes, "far", nothing_is_open).await;
}

#[tokio::test]
async fn what_cannot_be_moved_stays_and_says_why() {
    let scene = scene().await;
    let _provisioner = scene.provisioner();
    let own = scene.cluster.root.path().join("volumes");
    let pods = scene.cluster.world.in_namespace::<Pod>("default");
    let spec = json!({ "nodeName": "n", "containers": [{ "name": "c", "image": "a" }],
        "volumes": [{ "name": "d", "persistentVolumeClaim": { "claimName": "data" } }] });
    scene.cluster.world.create(&pods, json!({ "metadata": { "name": "user" }, "spec": spec })).await;
    let refused = async |id: &str, node: &str, place: &str, why: &str| {
        scene.ask(id, node, place).await;
        let (_, state) = scene.ended(id).await;
        assert_eq!(state.step, Step::Refused);
        assert!(state.message.contains(why), "{}", state.message);
        scene.is_whole_at(&own).await;
    };
    refused("1", "far", "", "the claim is used by the pods user: stop them first").await;
    let ended = json!({ "status": { "phase": "Succeeded" } });
    pods.patch_status("user", &Default::default(), &Patch::Merge(ended)).await.unwrap();
    refused("2", "nowhere", "", "there is no node nowhere").await;
    refused("3", "far", "small", "@small on this node").await;
    let events = scene.cluster.world.in_namespace::<Event>("default");
    let said = || async {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.iter().any(|event| event.reason.as_deref() == Some("VolumeMoveFailed")).then_some(())
    };
    until("told", said, || async { String::new() }).await;
    // Streams that break are sent again.
    scene.kubelets.cut.store(2, Ordering::SeqCst);
    scene.ask("4", "far", "").await;
    assert_eq!(scene.ended("4").await.1.step, Step::Moved);
    assert_eq!(scene.kubelets.cut.load(Ordering::SeqCst), 0);
    scene.is_whole_at(&scene.far).await;
    // What nobody understands holds no pod off for ever.
    let odd = json!({ "metadata": { "annotations": { MOVE: r#"{"step":"copying"}"# } } });
    let volumes = &scene.cluster.volumes;
    volumes.patch(&scene.volume, &Default::default(), &Patch::Merge(odd)).await.unwrap();
    until_object("free again", volumes, &scene.volume, |volume| !volume.annotations().contains_key(MOVE))
        .await;
}

/// Whoever asks hears it before anything is written.
#[tokio::test]
async fn a_volume_that_is_not_local_paths_is_not_moved() {
    let Cluster { world, volumes, .. } = cluster().await;
    let claimed = json!({ "namespace": "default", "name": "data" });
    world.create(&volumes, volume("plain", json!({ "storageClassName": "", "claimRef": claimed }))).await;
    let plain = volumes.get("plain").await.unwrap();
    let to = Spot { node: "far".to_owned(), place: String::new() };
    let why = look(&world.admin(), plain, &to).await.unwrap_err();
    assert_eq!(why, "the volume plain is not of local-path: only such volumes are moved");
}

#[tokio::test]
async fn a_move_that_takes_long_is_taken_back() {
    let scene = scene().await;
    let _provisioner = scene.provisioner();
    scene.kubelets.stuck.store(true, Ordering::SeqCst);
    scene.ask("1", "far", "").await;
    let volumes = &scene.cluster.volumes;
    until_object("some of it went", volumes, &scene.volume, |volume| {
        Move::of(volume).is_some_and(|state| state.step == Step::Copying && state.sent_bytes > 0)
    })
    .await;
    let taken_back = || async {
        let volume = volumes.get(&scene.volume).await.unwrap();
        let state = Move { take_back: true, ..Move::of(&volume).unwrap() };
        volumes.replace(&scene.volume, &PostParams::default(), &state.on(volume)).await.ok()
    };
    until("asked", taken_back, || async { String::new() }).await;
    let (_, state) = scene.ended("1").await;
    assert_eq!((state.step, state.message.as_str()), (Step::Refused, "taken back"));
    scene.is_whole_at(&scene.cluster.root.path().join("volumes")).await;
}

/// Lets so many changes through, and then nothing at all.
fn dying_after(client: kube::Client, changes: usize, dead: CancellationToken) -> kube::Client {
    let done = Arc::new(AtomicUsize::new(0));
    let send = move |request: http::Request<kube::client::Body>| {
        let is_change = request.method() != http::Method::GET && !request.uri().path().contains("/events");
        let last = is_change && done.fetch_add(1, Ordering::SeqCst) >= changes;
        let (client, dead) = (client.clone(), dead.clone());
        async move {
            if last {
                dead.cancel();
            }
            if dead.is_cancelled() {
                return Err(tower::BoxError::from("killed"));
            }
            client.send(request).await.map_err(tower::BoxError::from)
        }
    };
    kube::Client::new(tower::service_fn(send), "default")
}

/// Killed before each of the changes that a move makes, once.
#[tokio::test]
async fn whatever_step_it_is_killed_at_one_of_the_two_is_whole_and_it_goes_on() {
    let scene = scene().await;
    let own = scene.cluster.root.path().join("volumes");
    let mut killed = 0;
    for changes in 0.. {
        let (from, to, root) = match changes % 2 {
            0 => (&own, "far", &scene.far),
            _ => (&scene.far, "n", &own),
        };
        let id = format!("{changes}");
        scene.ask(&id, to, "").await;
        let name = scene.path().await.file_name().unwrap().to_owned();
        let dead = CancellationToken::new();
        let client = dying_after(scene.cluster.world.admin(), changes, dead.clone());
        let provisioner = Provisioner::start(&scene.cluster, &scene.kubelets, client);
        let finished = tokio::select! {
            () = dead.cancelled() => false,
            (_, state) = scene.ended(&id) => { assert_eq!(state.step, Step::Moved); true }
        };
        provisioner.end().await;
        let whole = [from, root].into_iter().any(|root| {
            let read = std::fs::read_to_string(root.join(&name).join("d/treasure"));
            read.is_ok_and(|read| read == TREASURE)
        });
        assert!(whole, "killed before change {changes}, the data is nowhere");
        let claim = scene.cluster.claims.get("data").await.unwrap();
        assert!(is_bound(&claim), "killed before change {changes}: {:?}", claim.status);
        if finished {
            break;
        }
        killed += 1;
        let provisioner = scene.provisioner();
        assert_eq!(scene.ended(&id).await.1.step, Step::Moved, "after {changes} changes");
        scene.is_whole_at(root).await;
        provisioner.end().await;
    }
    assert!(killed >= 8, "killed {killed} times");
}
