use super::*;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicI64, Ordering};
use x509_parser::prelude::{FromDer, X509Certificate};

const DAY: i64 = 86_400;

struct World {
    now: Arc<AtomicI64>,
    names: Arc<Mutex<Vec<String>>>,
    dir: tempfile::TempDir,
}

impl World {
    fn at(now: i64) -> Self {
        let names = Arc::new(Mutex::new(vec!["box".to_owned(), "192.0.2.7".to_owned()]));
        Self { now: Arc::new(AtomicI64::new(now)), names, dir: tempfile::tempdir().unwrap() }
    }

    fn start(&self) -> Result<Arc<Pki>, PkiError> {
        let (now, names) = (self.now.clone(), self.names.clone());
        let options = PkiOptions {
            node_name: "n1".to_owned(),
            extra_names: vec!["api.example.org".to_owned()],
            clock: Arc::new(move || Timestamp::from_second(now.load(Ordering::SeqCst)).unwrap()),
            host_names: Arc::new(move || names.lock().clone()),
            ..PkiOptions::default()
        };
        Pki::ensure(&self.path(), options)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("pki")
    }

    fn pass(&self, days: i64) {
        self.now.fetch_add(days * DAY, Ordering::SeqCst);
    }
}

fn today() -> World {
    World::at(OLDEST_NOW + 200 * DAY)
}

#[test]
fn makes_every_file_for_its_owner_alone() {
    let world = today();
    world.start().unwrap();
    let mut names: Vec<String> = std::fs::read_dir(world.path())
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{name}");
            name
        })
        .collect();
    names.sort();
    let wanted = [
        "admin.crt",
        "admin.key",
        "apiserver-kubelet-client.crt",
        "apiserver-kubelet-client.key",
        "apiserver.crt",
        "apiserver.key",
        "ca.crt",
        "ca.key",
        "front-proxy-ca.crt",
        "front-proxy-ca.key",
        "kubelet-serving-ca.crt",
        "kubelet-serving-ca.key",
        "kubelet.crt",
        "kubelet.key",
        "sa.key",
        "sa.pub",
    ];
    assert_eq!(names, wanted);
    assert_eq!(std::fs::metadata(world.path()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn second_start_changes_nothing_and_repairs_permissions() {
    let world = today();
    let first = world.start().unwrap();
    std::fs::set_permissions(world.path().join("ca.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    world.pass(3);
    let second = world.start().unwrap();
    for leaf in Leaf::ALL {
        assert_eq!(first.leaf_pem(leaf), second.leaf_pem(leaf), "{leaf:?}");
    }
    assert_eq!(first.ca_pem(), second.ca_pem());
    assert_eq!(first.service_account_key().public_point(), second.service_account_key().public_point());
    let mode = std::fs::metadata(world.path().join("ca.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn serving_certificate_has_every_name() {
    let pki = today().start().unwrap();
    let issued = pki.current(Leaf::ApiServer);
    let (_, cert) = X509Certificate::from_der(&issued.certified.cert[0]).unwrap();
    let san = format!("{:?}", cert.subject_alternative_name().unwrap().unwrap().value.general_names);
    for name in [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
        "n1",
        "box",
        "api.example.org",
        "[10, 43, 0, 1]",
        "[127, 0, 0, 1]",
        "[192, 0, 2, 7]",
        "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]",
    ] {
        assert!(
            san.contains(&format!("({name})")) || san.contains(&format!("(\"{name}\")")),
            "{name} in {san}"
        );
    }
}

#[test]
fn a_new_address_is_named_at_once() {
    let world = today();
    let pki = world.start().unwrap();
    assert_eq!(pki.be_known_as(vec!["api.example.org".to_owned()]).unwrap(), BTreeSet::new(), "as before");
    *world.names.lock() = vec!["box".to_owned()];
    let changed = pki.be_known_as(vec!["192.0.2.9".to_owned()]).unwrap();
    assert_eq!(changed, BTreeSet::from([Leaf::ApiServer, Leaf::Kubelet]));
    let names = pki.server_names();
    assert!(names.contains("192.0.2.9") && !names.contains("api.example.org"), "{names:?}");
    for leaf in changed {
        let issued = pki.current(leaf);
        let (_, cert) = X509Certificate::from_der(&issued.certified.cert[0]).unwrap();
        let san = format!("{:?}", cert.subject_alternative_name().unwrap().unwrap().value.general_names);
        assert!(san.contains("[192, 0, 2, 9]") && !san.contains("[192, 0, 2, 7]"), "{san}");
    }
}

#[test]
fn leaves_renew_while_running_and_authorities_never() {
    let world = today();
    let pki = world.start().unwrap();
    let before = pki.leaf_pem(Leaf::ApiServer);
    world.pass(3);
    assert!(pki.check().unwrap().is_empty());
    world.pass(365 * 2 / 3 - 5);
    assert_eq!(pki.leaf_pem(Leaf::ApiServer), before);
    assert_eq!(pki.check().unwrap().into_iter().collect::<Vec<_>>(), [Leaf::Admin], "it lives for a week");
    world.pass(4);
    let after = pki.leaf_pem(Leaf::ApiServer);
    assert_ne!(after, before, "due certificates are replaced when they are used");
    let changed = pki.check().unwrap();
    assert_eq!(changed.into_iter().collect::<Vec<_>>(), [Leaf::KubeletClient, Leaf::Kubelet, Leaf::Admin]);
    let again = world.start().unwrap();
    assert_eq!(again.leaf_pem(Leaf::ApiServer), after, "and the new ones are on disk");
    assert_eq!(again.ca_pem(), pki.ca_pem());
}

#[test]
fn new_addresses_renew_serving_certificates_lost_ones_do_not() {
    let world = today();
    let pki = world.start().unwrap();
    world.names.lock().push("192.0.2.8".to_owned());
    assert_eq!(pki.check().unwrap().into_iter().collect::<Vec<_>>(), [Leaf::ApiServer, Leaf::Kubelet]);
    world.names.lock().clear();
    assert!(pki.check().unwrap().is_empty());
}

#[test]
fn a_renewal_that_fails_keeps_the_old_certificate_and_is_not_retried_at_once() {
    let world = today();
    let pki = world.start().unwrap();
    let before = pki.leaf_pem(Leaf::ApiServer);
    world.pass(300);
    std::fs::remove_dir_all(world.path()).unwrap();
    assert_eq!(pki.leaf_pem(Leaf::ApiServer), before);
    std::fs::create_dir(world.path()).unwrap();
    assert_eq!(pki.leaf_pem(Leaf::ApiServer), before);
    world.pass(1);
    assert_ne!(pki.leaf_pem(Leaf::ApiServer), before);
}

#[test]
fn a_clock_at_zero_at_first_start_breaks_nothing_later() {
    let world = World::at(0);
    let pki = world.start().unwrap();
    let verifier = pki.client_verifier().unwrap();
    let chain = || pki.current(Leaf::Admin).certified.cert.clone();
    verifier.verify(&chain()).unwrap();
    world.now.store(OLDEST_NOW + 3 * DAY, Ordering::SeqCst);
    verifier.verify(&chain()).unwrap();
    world.now.store(OLDEST_NOW + 30 * DAY, Ordering::SeqCst);
    verifier.verify(&chain()).unwrap();
    world.pass(3000);
    verifier.verify(&chain()).unwrap();
    world.now.store(5, Ordering::SeqCst);
    verifier.verify(&chain()).unwrap();
}

#[test]
fn what_was_made_while_the_clock_was_ahead_does_not_live_on() {
    let world = World::at(OLDEST_NOW + 4000 * DAY);
    let pki = world.start().unwrap();
    let ahead = pki.leaf_pem(Leaf::Admin);
    // A boot without a clock says nothing of how late it is.
    world.now.store(5, Ordering::SeqCst);
    assert_eq!(pki.leaf_pem(Leaf::Admin), ahead);
    world.now.store(OLDEST_NOW + 30 * DAY, Ordering::SeqCst);
    assert_ne!(pki.leaf_pem(Leaf::Admin), ahead);
    assert!(!pki.current(Leaf::Admin).ends_after((pki.clock())() + jiff::SignedDuration::from_hours(7 * 24)));
}

#[test]
fn damaged_leaves_are_replaced_damaged_authorities_reported() {
    let world = today();
    let first = world.start().unwrap();
    std::fs::write(world.path().join("apiserver.crt"), "nonsense").unwrap();
    std::fs::copy(world.path().join("admin.key"), world.path().join("kubelet.key")).unwrap();
    let second = world.start().unwrap();
    assert_ne!(first.leaf_pem(Leaf::ApiServer), second.leaf_pem(Leaf::ApiServer));
    assert_ne!(first.leaf_pem(Leaf::Kubelet), second.leaf_pem(Leaf::Kubelet));
    assert_eq!(first.leaf_pem(Leaf::Admin), second.leaf_pem(Leaf::Admin));
    std::fs::copy(world.path().join("admin.key"), world.path().join("ca.key")).unwrap();
    assert!(matches!(world.start(), Err(PkiError::Malformed { .. })));
    std::fs::remove_file(world.path().join("ca.key")).unwrap();
    assert!(matches!(world.start(), Err(PkiError::HalfMissing { .. })));
}

#[test]
fn an_interrupted_first_start_is_completed() {
    let world = today();
    let first = world.start().unwrap();
    for name in ["ca.crt", "admin.crt", "sa.pub"] {
        std::fs::remove_file(world.path().join(name)).unwrap();
    }
    let second = world.start().unwrap();
    let verifier = second.client_verifier().unwrap();
    verifier.verify(&second.current(Leaf::Admin).certified.cert).unwrap();
    assert_eq!(first.service_account_key().public_point(), second.service_account_key().public_point());
    assert!(world.path().join("sa.pub").exists());
}

/// A folder as earlier versions left it: every leaf below one authority, the administrator's a master's for a year.
#[test]
fn an_older_folder_is_brought_up_to_date() {
    let world = today();
    let first = world.start().unwrap();
    let now = (first.clock())();
    let write = |leaf: Leaf, orgs: &[&str], cn: &str| {
        let signed =
            certs::sign_client(&first.trust.now().cluster.signer, cn, orgs, LEAF_LIFETIME, now).unwrap();
        std::fs::write(world.path().join(format!("{}.crt", leaf.file())), signed.cert_pem).unwrap();
        std::fs::write(world.path().join(format!("{}.key", leaf.file())), signed.key_pem).unwrap();
    };
    write(Leaf::Admin, &["system:masters"], "kubernetes-admin");
    write(Leaf::KubeletClient, &["system:masters"], KUBELET_CLIENT);
    write(Leaf::Kubelet, &["system:nodes"], "system:node:n1");
    for name in ["kubelet-serving-ca.crt", "kubelet-serving-ca.key"] {
        std::fs::remove_file(world.path().join(name)).unwrap();
    }
    let second = world.start().unwrap();
    assert_eq!(second.ca_pem(), first.ca_pem());
    assert_eq!(second.leaf_pem(Leaf::ApiServer), first.leaf_pem(Leaf::ApiServer));
    assert_eq!(second.current(Leaf::Admin).organizations(), [ADMINS]);
    assert!(!second.current(Leaf::Admin).ends_after(now + jiff::SignedDuration::from_hours(7 * 24)));
    assert_eq!(second.current(Leaf::KubeletClient).organizations(), [] as [String; 0]);
    let issuer = |leaf: Leaf| {
        let issued = second.current(leaf);
        let (_, cert) = X509Certificate::from_der(&issued.certified.cert[0]).unwrap();
        cert.issuer().to_string()
    };
    assert_eq!(issuer(Leaf::Kubelet), "CN=kubernetes-kubelet-serving-ca");
    assert_eq!(issuer(Leaf::Admin), "CN=kubernetes-ca");
    assert_eq!(world.start().unwrap().leaf_pem(Leaf::Kubelet), second.leaf_pem(Leaf::Kubelet));
}

#[test]
fn who_asks_for_new_leaves_gets_them_once() {
    let world = today();
    let pki = world.start().unwrap();
    let before = Leaf::ALL.map(|leaf| pki.leaf_fingerprint(leaf));
    assert!(pki.answer_request().unwrap().is_empty());
    std::fs::write(world.path().join(RENEW_REQUEST), "").unwrap();
    assert_eq!(pki.answer_request().unwrap(), Leaf::ALL.into());
    let after = Leaf::ALL.map(|leaf| pki.leaf_fingerprint(leaf));
    assert!(before.iter().zip(&after).all(|(before, after)| before != after && after.len() == 64));
    assert!(pki.answer_request().unwrap().is_empty());
}

#[test]
fn clients_are_signed_beside_the_server() {
    let world = today();
    let pki = world.start().unwrap();
    let now = (pki.clock())();
    let hour = Duration::from_secs(3600);
    let (signed, ca) = sign_client_in(&world.path(), "root", &["system:masters"], hour, now).unwrap();
    assert_eq!(ca, pki.ca_pem());
    let chain = [CertificateDer::from_pem_slice(signed.cert_pem.as_bytes()).unwrap()];
    let verifier = pki.client_verifier().unwrap();
    verifier.verify(&chain).unwrap();
    world.now.fetch_add(3601, Ordering::SeqCst);
    assert!(verifier.verify(&chain).is_err(), "it is over after an hour");
    let elsewhere = sign_client_in(Path::new("/nonexistent"), "root", &[], hour, now);
    assert!(matches!(elsewhere, Err(PkiError::Read { .. })));
}

#[test]
fn strangers_certificates_are_refused() {
    let (ours, theirs) = (today().start().unwrap(), today().start().unwrap());
    let verifier = ours.client_verifier().unwrap();
    verifier.verify(&ours.current(Leaf::Admin).certified.cert).unwrap();
    assert!(verifier.verify(&theirs.current(Leaf::Admin).certified.cert).is_err());
    assert!(
        verifier.verify(&ours.current(Leaf::ApiServer).certified.cert).is_err(),
        "a server's is no client's"
    );
    assert!(verifier.verify(&ours.current(Leaf::Kubelet).certified.cert).is_err());
    assert!(verifier.verify(&[]).is_err());
}

#[tokio::test]
async fn a_handshake_in_both_directions() {
    // rustls' client judges by the machine's own clock.
    let pki = World::at(Timestamp::now().as_second()).start().unwrap();
    let (client, server) = tokio::io::duplex(16 * 1024);
    let acceptor = tokio_rustls::TlsAcceptor::from(pki.kubelet_server_tls().unwrap());
    let connector = tokio_rustls::TlsConnector::from(pki.client_config_for_kubelet(&[]).unwrap());
    let name = rustls::pki_types::ServerName::try_from("n1").unwrap();
    let (accepted, connected) = tokio::join!(acceptor.accept(server), connector.connect(name, client));
    connected.unwrap();
    let accepted = accepted.unwrap();
    let chain = accepted.get_ref().1.peer_certificates().unwrap();
    pki.client_verifier().unwrap().verify(chain).unwrap();
}

#[test]
fn a_first_start_is_quick() {
    let world = today();
    let begun = std::time::Instant::now();
    world.start().unwrap();
    // A tenth of the server's whole cold start is the aim; the bound is loose because test machines are busy.
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().into_owned()
}

/// Whether a client that knows `roots` (PEM) alone believes the API server.
fn believed(pki: &Arc<Pki>, roots: &str) -> bool {
    let mut known = rustls::RootCertStore::empty();
    for der in CertificateDer::pem_slice_iter(roots.as_bytes()) {
        known.add(der.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let judge = rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(known), provider);
    let judge = judge.build().unwrap();
    let shown = pki.current(Leaf::ApiServer).certified.cert.clone();
    let now = u64::try_from((pki.clock())().as_second()).unwrap();
    let now = rustls::pki_types::UnixTime::since_unix_epoch(Duration::from_secs(now));
    let name = rustls::pki_types::ServerName::try_from("n1").unwrap();
    use rustls::client::danger::ServerCertVerifier;
    judge.verify_server_cert(&shown[0], &shown[1..], &name, &[], now).is_ok()
}

#[tokio::test]
async fn authorities_are_replaced_while_all_runs() {
    let world = today();
    let pki = world.start().unwrap();
    let verifier = pki.client_verifier().unwrap();
    let (old_ca, old_admin) = (pki.ca_pem(), [der(&pki.leaf_pem(Leaf::Admin).0)]);
    let old_id = verifier.authority_of(&old_admin).unwrap();
    let mut changes = pki.ca_changes();
    changes.mark_unchanged();
    pki.begin_rotation().unwrap();
    assert!(changes.has_changed().unwrap());
    assert_eq!(pki.stage(), Stage::Trusting);
    let both = pki.ca_pem();
    let new_ca = both.strip_prefix(&old_ca).expect("the old one signs, so it is first").to_owned();
    assert!(believed(&pki, &old_ca) && believed(&pki, &both) && !believed(&pki, &new_ca));
    pki.issue_from_next().unwrap();
    assert_eq!((pki.stage(), pki.ca_pem()), (Stage::Issuing, format!("{new_ca}{old_ca}")));
    let new_admin = [der(&pki.leaf_pem(Leaf::Admin).0)];
    verifier.verify(&old_admin).unwrap();
    verifier.verify(&new_admin).unwrap();
    assert!(believed(&pki, &old_ca), "who knows the old one alone is led to the new one");
    assert!(believed(&pki, &new_ca));
    // A start in between changes nothing.
    let again = world.start().unwrap();
    assert_eq!((again.stage(), again.ca_pem()), (Stage::Issuing, pki.ca_pem()));
    assert!(believed(&again, &old_ca) && believed(&again, &new_ca));
    assert_eq!(again.leaf_fingerprint(Leaf::Admin), pki.leaf_fingerprint(Leaf::Admin));
    let dropped = tokio::spawn({
        let verifier = verifier.clone();
        async move { verifier.distrusted(&old_id).await }
    });
    pki.end_rotation().unwrap();
    dropped.await.unwrap();
    assert_eq!((pki.stage(), pki.ca_pem()), (Stage::Settled, new_ca.clone()));
    assert!(!verifier.trusts(&old_id) && verifier.verify(&old_admin).is_err());
    verifier.verify(&new_admin).unwrap();
    assert!(!believed(&pki, &old_ca) && believed(&pki, &new_ca));
    let (signed, ca) =
        sign_client_in(&world.path(), "a", &[], Duration::from_secs(3600), (pki.clock())()).unwrap();
    assert_eq!(ca, new_ca);
    verifier.verify(&[der(&signed.cert_pem)]).unwrap();
    let left =
        std::fs::read_dir(world.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let left: Vec<_> = left.filter(|name| name.contains("next") || name.contains("previous")).collect();
    assert!(left.is_empty() && !world.path().join("ca-cross.crt").exists(), "{left:?}");
}

#[test]
fn new_authorities_that_nobody_wants_go() {
    let world = today();
    let pki = world.start().unwrap();
    let before = pki.ca_pem();
    pki.begin_rotation().unwrap();
    let both = pki.ca_pem();
    pki.begin_rotation().unwrap();
    assert_eq!(pki.ca_pem(), both, "those that are there stay");
    assert_eq!(world.start().unwrap().ca_pem(), both);
    pki.end_rotation().unwrap();
    assert_eq!((pki.stage(), pki.ca_pem()), (Stage::Settled, before.clone()));
    assert_eq!(world.start().unwrap().ca_pem(), before);
}

/// The power goes after each file that a promotion writes or takes away.
#[test]
fn a_promotion_that_was_interrupted_is_finished() {
    let files = |dir: &Path| -> Vec<(PathBuf, Vec<u8>)> {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
    };
    let world = today();
    let pki = world.start().unwrap();
    pki.begin_rotation().unwrap();
    let before = files(&world.path());
    let wanted = {
        pki.issue_from_next().unwrap();
        pki.ca_pem()
    };
    let after = files(&world.path());
    let of =
        |name: &str, all: &[(PathBuf, Vec<u8>)]| all.iter().find(|(path, _)| path.ends_with(name)).cloned();
    let steps = ["ca-cross.crt", "ca-previous.crt", "ca.key", "ca.crt", "-ca-next.key", "-ca-next.crt"];
    for stopped in 2..=steps.len() {
        for (path, _) in files(&world.path()) {
            std::fs::remove_file(path).unwrap();
        }
        before.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
        for step in &steps[..stopped] {
            match step.strip_prefix('-') {
                Some(gone) => std::fs::remove_file(world.path().join(gone)).unwrap(),
                None => {
                    let (path, bytes) = of(step, &after).unwrap();
                    std::fs::write(path, bytes).unwrap();
                }
            }
        }
        let again = world.start().unwrap_or_else(|error| panic!("after {stopped} steps: {error}"));
        assert_eq!(
            (again.stage(), again.ca_pem()),
            (Stage::Issuing, wanted.clone()),
            "after {stopped} steps"
        );
        assert!(again.kubelet_ca_pem().matches("BEGIN").count() == 2, "the others are promoted with it");
        again.end_rotation().unwrap();
    }
}
