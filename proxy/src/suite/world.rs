//! A small world of network namespaces, for tests with real packets: a node in the middle, a network of pods behind it and
//! one of clients outside. Each is a thread with a namespace of its own, gone with the thread; nothing of the machine
//! is touched.

use crate::family::Family;
use nix::sched::{CloneFlags, unshare};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Long enough for a packet on this machine, short enough to wait for one that is dropped.
pub const ANSWER_TIME: Duration = Duration::from_millis(400);

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
    fn new() -> Self {
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
    Pod,
    Outside,
}

pub struct World {
    pub pods: Place,
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
    From { server: IpAddr, client: IpAddr },
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
fn serve(ip: IpAddr) {
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

fn connect(from: Option<IpAddr>, to: SocketAddr) -> std::io::Result<Talk> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(to), socket2::Type::STREAM, None)?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    socket.connect_timeout(&to.into(), ANSWER_TIME)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    Ok(Talk(stream))
}

fn ask_tcp(from: Option<IpAddr>, to: SocketAddr) -> Answer {
    match connect(from, to).and_then(|mut talk| talk.ask()) {
        Ok(answer) => answer,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Answer::Refused,
        Err(_) => Answer::Nothing,
    }
}

fn ask_udp(from: Option<IpAddr>, to: SocketAddr) -> Answer {
    let any = if to.is_ipv4() { "0.0.0.0" } else { "::" }.parse().expect("an address");
    let socket = UdpSocket::bind((from.unwrap_or(any), 0)).expect("a port");
    socket.set_read_timeout(Some(ANSWER_TIME)).expect("a time");
    let mut text = [0; 200];
    let answer = socket.connect(to).and_then(|()| socket.send(b"?")).and_then(|_| socket.recv(&mut text));
    match answer {
        Ok(read) => read_answer(&text[..read]),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Answer::Refused,
        Err(_) => Answer::Nothing,
    }
}

impl World {
    fn new() -> Self {
        let world = Self { pods: Place::new(), outside: Place::new() };
        shell("ip link set lo up; sysctl -q net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        world.link("pods", &world.pods, ["10.42.0", "fd01:"], &[2, 3, 4]);
        world.link("outside", &world.outside, ["192.0.2", "fd02:"], &[2, 3]);
        for family in Family::ALL {
            for last in [2, 3, 4] {
                world.pods.run(move || serve(pod(family, last)));
            }
        }
        world
    }

    /// A pair of interfaces, the node's end with the network's first address.
    fn link(&self, name: &str, place: &Place, [four, six]: [&str; 2], hosts: &[u8]) {
        shell(&format!(
            "ip link add name {name} type veth peer name inner netns {}
             ip address add {four}.1/24 dev {name}; ip -6 address add {six}:1/64 dev {name} nodad
             ip link set {name} up",
            place.path
        ));
        let mut script = "ip link set lo up\n".to_owned();
        for host in hosts {
            script += &format!("ip address add {four}.{host}/24 dev inner\n");
            script += &format!("ip -6 address add {six}:{host}/64 dev inner nodad\n");
        }
        script += &format!("ip link set inner up\nip route add default via {four}.1\nip -6 route add default via {six}:1\n");
        place.run(move || drop(shell(&script)));
    }

    fn run<T: Send + 'static>(&self, from: From, job: impl FnOnce() -> T + Send + 'static) -> T {
        match from {
            From::Node => std::thread::spawn(job).join().expect("the job ended well"),
            From::Pod => self.pods.run(job),
            From::Outside => self.outside.run(job),
        }
    }

    /// Asks once. Blocks the thread: whoever relays in this process must run on another one.
    pub fn ask(&self, from: From, source: Option<IpAddr>, protocol: &str, to: SocketAddr) -> Answer {
        let is_udp = protocol == "udp";
        self.run(from, move || if is_udp { ask_udp(source, to) } else { ask_tcp(source, to) })
    }

    pub fn connect(&self, from: From, to: SocketAddr) -> std::io::Result<Talk> {
        self.run(from, move || connect(None, to))
    }
}
