//! A small world of network namespaces, for tests with real packets: a node in the middle, a network of pods behind it and
//! one of clients outside. Each is a thread with a namespace of its own, gone with the thread; nothing of the machine
//! is touched.

use crate::family::Family;
use nix::sched::{CloneFlags, unshare};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long an answer is waited for that must come. The kernel forgets an ICMP refusal that comes while it still sends
/// the packet, and asks again after a second; so does IPv6 for a neighbour.
const PATIENCE: Duration = Duration::from_secs(5);
/// Long enough for a packet on this machine, short enough to wait for one that is dropped.
const SILENCE: Duration = Duration::from_millis(400);

/// Whether namespaces can be made here; says why not.
pub fn can_be_made() -> bool {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: network namespaces need root");
        return false;
    }
    for program in ["ip", "nft", "iptables", "ip6tables", "conntrack"] {
        if !crate::command::exists(program) {
            println!("skipped: there is no {program} on this machine");
            return false;
        }
    }
    true
}

/// Runs a test on a node's thread: everything it does, its processes included, is in the node's namespace.
pub fn on_a_node<T: Send + 'static>(test: impl FnOnce(World) -> T + Send + 'static) -> Option<T> {
    if !can_be_made() {
        return None;
    }
    let node = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        test(World::new())
    });
    match node.join() {
        Ok(value) => Some(value),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

pub fn shell(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{script}\n{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

type Job = Box<dyn FnOnce() + Send>;

/// A namespace beside the node's.
pub struct Place {
    jobs: Sender<Job>,
    path: String,
}

impl Place {
    pub fn new() -> Self {
        let (jobs, work) = channel::<Job>();
        let (tell, told) = channel();
        std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
            let path = format!("/proc/{}/task/{}/ns/net", std::process::id(), nix::unistd::gettid());
            tell.send(path).expect("somebody waits");
            work.into_iter().for_each(|job| job());
        });
        Self { jobs, path: told.recv().expect("a namespace") }
    }

    /// As `ip` takes it for a namespace.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = channel();
        self.jobs.send(Box::new(move || drop(tell.send(job())))).expect("the place is there");
        told.recv().expect("the job ended well")
    }
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub enum From {
    Node,
    /// The pod with this last number of its address.
    Pod(u8),
    Outside,
}

pub struct World {
    pods: [Place; 3],
    pub outside: Place,
}

/// Addresses of the world in a family: `last` of the pods', the outside's, and Services'.
pub fn pod(family: Family, last: u8) -> IpAddr {
    address(family, [10, 42, 0], 0xfd01, last)
}

pub fn outside(family: Family, last: u8) -> IpAddr {
    address(family, [192, 0, 2], 0xfd02, last)
}

pub fn service(family: Family, last: u8) -> IpAddr {
    address(family, [10, 43, 0], 0xfd03, last)
}

fn address(family: Family, [a, b, c]: [u8; 3], first: u16, last: u8) -> IpAddr {
    match family {
        Family::V4 => [a, b, c, last].into(),
        Family::V6 => [first, 0, 0, 0, 0, 0, 0, u16::from(last)].into(),
    }
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Who answered, and whom it saw.
    From {
        server: IpAddr,
        client: IpAddr,
    },
    Refused,
    Nothing,
}

impl Answer {
    pub fn server(&self) -> Option<IpAddr> {
        match self {
            Self::From { server, .. } => Some(*server),
            _ => None,
        }
    }
}

/// Each pod answers with its own address and that of whom it sees.
pub fn serve(ip: IpAddr) {
    let tcp = TcpListener::bind((ip, 8080)).expect("a port");
    std::thread::spawn(move || {
        for mut stream in tcp.incoming().flatten() {
            std::thread::spawn(move || {
                let peer = stream.peer_addr().map(|peer| peer.ip());
                let Ok(peer) = peer else { return };
                let mut byte = [0];
                while stream.read(&mut byte).is_ok_and(|read| read == 1) {
                    if stream.write_all(format!("{ip} {peer}\n").as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let udp = UdpSocket::bind((ip, 8080)).expect("a port");
    std::thread::spawn(move || {
        let mut byte = [0];
        while let Ok((_, peer)) = udp.recv_from(&mut byte) {
            // Who asked may be gone.
            let _ = udp.send_to(format!("{ip} {}\n", peer.ip()).as_bytes(), peer);
        }
    });
}

/// An open connection.
pub struct Talk(TcpStream);

impl Talk {
    pub fn ask(&mut self) -> std::io::Result<Answer> {
        self.0.write_all(b"?")?;
        let mut text = [0; 200];
        let read = self.0.read(&mut text)?;
        Ok(read_answer(&text[..read]))
    }
}

fn read_answer(text: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(text);
    let mut words = text.split_whitespace().map(|word| word.parse().expect("an address"));
    match (words.next(), words.next()) {
        (Some(server), Some(client)) => Answer::From { server, client },
        _ => Answer::Nothing,
    }
}

fn connect(from: Option<IpAddr>, to: SocketAddr, time: Duration) -> std::io::Result<Talk> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(to), socket2::Type::STREAM, None)?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    socket.connect_timeout(&to.into(), time)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    Ok(Talk(stream))
}

fn ask_tcp(from: Option<IpAddr>, to: SocketAddr, time: Duration) -> Answer {
    match connect(from, to, time).and_then(|mut talk| talk.ask()) {
        Ok(answer) => answer,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Answer::Refused,
        Err(_) => Answer::Nothing,
    }
}

/// From this thread's namespace, where an answer must come.
pub fn ask_patiently(to: SocketAddr) -> Answer {
    ask_tcp(None, to, PATIENCE)
}

/// From this thread's namespace, where none is expected.
pub fn ask_briefly(to: SocketAddr) -> Answer {
    ask_tcp(None, to, SILENCE)
}

fn ask_udp(from: Option<IpAddr>, to: SocketAddr, time: Duration) -> Answer {
    let any = if to.is_ipv4() { "0.0.0.0" } else { "::" }.parse().expect("an address");
    let socket = UdpSocket::bind((from.unwrap_or(any), 0)).expect("a port");
    socket.set_read_timeout(Some(time)).expect("a time");
    let mut text = [0; 200];
    let answer = socket.connect(to).and_then(|()| socket.send(b"?")).and_then(|_| socket.recv(&mut text));
    match answer {
        Ok(read) => read_answer(&text[..read]),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Answer::Refused,
        Err(_) => Answer::Nothing,
    }
}

/// The last numbers of pods' addresses.
const PODS: [u8; 3] = [2, 3, 4];

/// A point-to-point link, as the pod network makes it: all that a pod sends passes the node.
fn link_pod(place: &Place, last: u8) {
    shell(&format!(
        "ip link add name pod{last} type veth peer name inner netns {}
         ip address add 10.42.0.1/32 dev pod{last}; ip -6 address add fd01::1/128 dev pod{last} nodad
         ip link set pod{last} up
         ip route add 10.42.0.{last}/32 dev pod{last}; ip -6 route add fd01::{last}/128 dev pod{last}",
        place.path
    ));
    place.run(move || {
        shell(&format!(
            "ip link set lo up; ip address add 10.42.0.{last}/32 dev inner
             ip -6 address add fd01::{last}/128 dev inner nodad; ip link set inner up
             ip route add 10.42.0.1/32 dev inner; ip route add default via 10.42.0.1
             ip -6 route add fd01::1/128 dev inner; ip -6 route add default via fd01::1"
        ));
    });
}

/// One network with two clients.
fn link_outside(place: &Place) {
    shell(&format!(
        "ip link add name outside type veth peer name inner netns {}
         ip address add 192.0.2.1/24 dev outside; ip -6 address add fd02::1/64 dev outside nodad
         ip link set outside up",
        place.path
    ));
    place.run(|| {
        shell(
            "ip link set lo up; ip address add 192.0.2.2/24 dev inner; ip address add 192.0.2.3/24 dev inner
             ip -6 address add fd02::3/64 dev inner nodad; ip -6 address add fd02::2/64 dev inner nodad
             ip link set inner up; ip route add default via 192.0.2.1; ip -6 route add default via fd02::1",
        );
    });
}

impl World {
    fn new() -> Self {
        let world = Self { pods: PODS.map(|_| Place::new()), outside: Place::new() };
        // Whatever has no other way leaves by the outside, as on a machine.
        shell("ip link set lo up; sysctl -q net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        for (place, last) in world.pods.iter().zip(PODS) {
            link_pod(place, last);
            for family in Family::ALL {
                place.run(move || serve(pod(family, last)));
            }
        }
        link_outside(&world.outside);
        Family::ALL.into_iter().for_each(|family| serve(outside(family, 1)));
        shell("ip route add default via 192.0.2.2; ip -6 route add default via fd02::2");
        // Neighbours of IPv6 find each other a moment after their links are up.
        for family in Family::ALL {
            for last in PODS {
                let direct = SocketAddr::new(pod(family, last), 8080);
                let answer = world.ask(From::Node, None, "tcp", direct);
                assert_eq!(answer.server(), Some(direct.ip()), "a pod is reached without any Service");
            }
        }
        world
    }

    fn place(&self, last: u8) -> &Place {
        let at = PODS.iter().position(|pod| *pod == last).expect("there is such a pod");
        &self.pods[at]
    }

    fn run<T: Send + 'static>(&self, from: From, job: impl FnOnce() -> T + Send + 'static) -> T {
        match from {
            From::Node => std::thread::spawn(job).join().expect("the job ended well"),
            From::Pod(last) => self.place(last).run(job),
            From::Outside => self.outside.run(job),
        }
    }

    /// Asks once. Blocks the thread: whoever relays in this process must run on another one.
    pub fn ask(&self, from: From, source: Option<IpAddr>, protocol: &str, to: SocketAddr) -> Answer {
        let ask = if protocol == "udp" { ask_udp } else { ask_tcp };
        self.run(from, move || ask(source, to, PATIENCE))
    }

    /// Asks by TCP where no answer is expected.
    pub fn ask_briefly(&self, from: From, source: Option<IpAddr>, to: SocketAddr) -> Answer {
        self.run(from, move || ask_tcp(source, to, SILENCE))
    }

    pub fn connect(&self, from: From, to: SocketAddr) -> std::io::Result<Talk> {
        self.run(from, move || connect(None, to, PATIENCE))
    }

    /// Somebody who asks by TCP all the time, one question after the other, until told to stop.
    pub fn load(&self, from: From, to: SocketAddr) -> Load {
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (stopped, said) = (stop.clone(), answers.clone());
        let ask = move || {
            while !stopped.load(Ordering::Relaxed) {
                let answer = ask_tcp(None, to, PATIENCE);
                said.lock().expect("nobody panicked").push(answer);
            }
        };
        // Its thread is in the namespace of the one that starts it.
        let thread = self.run(from, move || std::thread::spawn(ask));
        Load { from, stop, answers, thread }
    }
}

/// Its answers are kept.
pub struct Load {
    from: From,
    stop: Arc<AtomicBool>,
    answers: Arc<Mutex<Vec<Answer>>>,
    thread: std::thread::JoinHandle<()>,
}

impl Load {
    fn asked(&self) -> usize {
        self.answers.lock().expect("nobody panicked").len()
    }

    /// Returns when so many questions more have been answered, or were not within their time. The first of them may have been
    /// under way already.
    pub fn until_asked(&self, more: usize) {
        let enough = self.asked() + more;
        while self.asked() < enough {
            assert!(!self.thread.is_finished(), "the load ended by itself");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn end(self) -> (From, Vec<Answer>) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the load ended well");
        let answers = std::mem::take(&mut *self.answers.lock().expect("nobody panicked"));
        (self.from, answers)
    }
}
