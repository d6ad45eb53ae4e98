//! Three servers and three members of etcd, each with a network of its own.

use crate::Error;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// For documentation and tests (RFC 5737); nobody outside of these namespaces sees it.
const NET: &str = "198.51.100";
const PORT: u16 = 6443;
/// A debug build on a busy machine.
const STARTED_WITHIN: Duration = Duration::from_secs(60);
/// What a member's disk holds: two segments of its log of 64 MB each, and what this program writes.
const DISK: &str = "size=300m";
/// So much of every log is shown after a failure.
const LOG_LINES: usize = 25;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Server,
    Member,
}

/// One machine: a namespace and the process in it.
pub struct Machine {
    pub part: Part,
    pub number: usize,
    process: Option<Child>,
    dir: PathBuf,
    arguments: Vec<String>,
}

impl Machine {
    pub fn name(&self) -> String {
        let kind = if self.part == Part::Server { "server" } else { "etcd" };
        format!("{kind}{}", self.number)
    }

    fn ip(&self) -> String {
        ip(self.part, self.number)
    }

    pub fn begin(&mut self) -> Result<(), Error> {
        let log = OpenOptions::new().create(true).append(true).open(self.dir.join("log"))?;
        let program = if self.part == Part::Server { coracle_tests::coracle() } else { "etcd".into() };
        let process = Command::new("ip")
            .args(["netns", "exec", &self.name()])
            .arg(program)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        self.process = Some(process);
        Ok(())
    }

    pub fn kill(&mut self) -> Result<(), Error> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_none_or(|process| process.try_wait().is_ok_and(|status| status.is_some()))
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) -> Result<(), Error> {
        let Some(process) = &self.process else { return Ok(()) };
        // ip(8) has become the program by exec.
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(process.id())?), signal)?;
        Ok(())
    }

    /// Beside the data of a member.
    pub fn filler(&self) -> PathBuf {
        self.dir.join("data").join("filler")
    }

    fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        format!("---- {} ----\n{tail}\n", self.name())
    }
}

fn ip(part: Part, number: usize) -> String {
    format!("{NET}.{}", number + if part == Part::Server { 10 } else { 20 })
}

pub struct World {
    pub servers: Vec<Machine>,
    pub members: Vec<Machine>,
    dir: TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        for machine in self.servers.iter_mut().chain(&mut self.members) {
            // The namespace of processes ends what this cannot.
            let _ = machine.kill();
        }
        for member in &self.members {
            let _ = Command::new("umount").arg("-l").arg(member.dir.join("data")).status();
        }
    }
}

impl World {
    /// Returns when all three servers are ready: the first made the cluster, the others have joined it by a token.
    pub async fn start() -> Result<Self, Error> {
        let dir = tempfile::tempdir()?;
        network()?;
        let mut world = Self { servers: Vec::new(), members: Vec::new(), dir };
        for number in 1..=3 {
            let mut member = world.machine(Part::Member, number)?;
            let data = member.dir.join("data");
            std::fs::create_dir(&data)?;
            run("mount", &["-t", "tmpfs", "-o", DISK, "tmpfs", &data.display().to_string()])?;
            member.arguments = member_arguments(&member, &data);
            member.begin()?;
            world.members.push(member);
        }
        let mut first = world.machine(Part::Server, 1)?;
        first.arguments = server_arguments(&first, &[]);
        first.begin()?;
        world.servers.push(first);
        world.ready(0).await?;
        let token = world.token()?;
        let join = format!("https://{}:{PORT}", ip(Part::Server, 1));
        for number in 2..=3 {
            let mut server = world.machine(Part::Server, number)?;
            server.arguments = server_arguments(&server, &["--join", &join, "--token", &token]);
            server.begin()?;
            world.servers.push(server);
        }
        world.ready(1).await?;
        world.ready(2).await?;
        Ok(world)
    }

    fn machine(&self, part: Part, number: usize) -> Result<Machine, Error> {
        let machine = Machine { part, number, process: None, dir: PathBuf::new(), arguments: Vec::new() };
        let dir = self.dir.path().join(machine.name());
        std::fs::create_dir(&dir)?;
        namespace(&machine.name(), &machine.ip())?;
        Ok(Machine { dir, ..machine })
    }

    async fn ready(&mut self, index: usize) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let server = &mut self.servers[index];
            if server.has_ended() {
                return Err(format!("{} has ended\n{}", server.name(), self.logs()).into());
            }
            let answer = match self.client(index, Duration::from_secs(2)).await {
                Ok(client) => {
                    let request = http::Request::get("/readyz").body(Vec::new())?;
                    client.request_text(request).await.map_err(Error::from)
                }
                Err(error) => Err(error),
            };
            match answer {
                Ok(_) => return Ok(()),
                Err(error) if begun.elapsed() > STARTED_WITHIN => {
                    return Err(format!("server {index} is not ready: {error}\n{}", self.logs()).into());
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn token(&self) -> Result<String, Error> {
        let dir = self.dir.path().join("server1");
        let made = Command::new(coracle_tests::coracle())
            .args(["token", "create", "--server", "--data-dir"])
            .arg(dir.join("data"))
            .arg("--kubeconfig")
            .arg(dir.join("kubeconfig"))
            .output()?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into());
        }
        Ok(String::from_utf8(made.stdout)?.trim().to_owned())
    }

    /// A client of this server, as the administrator, that tells every failure.
    pub async fn client(&self, index: usize, patience: Duration) -> Result<kube::Client, Error> {
        let file = Kubeconfig::read_from(self.dir.path().join("server1/kubeconfig"))?;
        let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        config.cluster_url = format!("https://{}:{PORT}/", self.servers[index].ip()).parse()?;
        config.default_retry = false;
        config.connect_timeout = Some(patience);
        config.read_timeout = Some(patience);
        config.write_timeout = Some(patience);
        Ok(kube::Client::try_from(config)?)
    }

    pub fn logs(&self) -> String {
        self.servers.iter().chain(&self.members).map(Machine::log_tail).collect()
    }
}

fn member_arguments(member: &Machine, data: &Path) -> Vec<String> {
    let url = |port: u16| format!("http://{}:{port}", member.ip());
    let cluster: Vec<String> =
        (1..=3).map(|n| format!("etcd{n}=http://{}:2380", ip(Part::Member, n))).collect();
    [
        ("--name", member.name()),
        ("--data-dir", data.join("etcd").display().to_string()),
        ("--listen-client-urls", url(2379)),
        ("--advertise-client-urls", url(2379)),
        ("--listen-peer-urls", url(2380)),
        ("--initial-advertise-peer-urls", url(2380)),
        ("--initial-cluster", cluster.join(",")),
        ("--heartbeat-interval", "100".to_owned()),
        ("--election-timeout", "1000".to_owned()),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect()
}

fn server_arguments(server: &Machine, further: &[&str]) -> Vec<String> {
    let members: Vec<String> = (1..=3).map(|n| format!("http://{}:2379", ip(Part::Member, n))).collect();
    let file = |name: &str| server.dir.join(name).display().to_string();
    let own = [
        ("--data-dir", file("data")),
        ("--write-kubeconfig", file("kubeconfig")),
        ("--node-ip", server.ip()),
        ("--node-name", server.name()),
        ("--https-port", PORT.to_string()),
        ("--disable", "kubelet,proxy,dns".to_owned()),
        ("--storage-backend", "etcd".to_owned()),
        ("--etcd-servers", members.join(",")),
    ];
    let own = own.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
    std::iter::once("server".to_owned())
        .chain(own)
        .chain(further.iter().map(|word| (*word).to_owned()))
        .collect()
}

pub fn run(program: &str, arguments: &[&str]) -> Result<(), Error> {
    let done = Command::new(program).args(arguments).output()?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr)).into())
}

fn ip_words(words: &str) -> Result<(), Error> {
    run("ip", &words.split(' ').collect::<Vec<_>>())
}

/// Two switches without a line between them: the clients are at the first.
fn network() -> Result<(), Error> {
    // Names of namespaces are files, which would outlive this one.
    std::fs::create_dir_all("/run/netns")?;
    run("mount", &["-t", "tmpfs", "tmpfs", "/run/netns"])?;
    for words in [
        "link set lo up",
        "link add there type bridge",
        "link add apart type bridge",
        "link set there up",
        "link set apart up",
    ] {
        ip_words(words)?;
    }
    ip_words(&format!("addr add {NET}.1/24 dev there"))
}

fn namespace(name: &str, ip: &str) -> Result<(), Error> {
    ip_words(&format!("netns add {name}"))?;
    ip_words(&format!("link add v-{name} type veth peer name eth0 netns {name}"))?;
    ip_words(&format!("link set v-{name} master there up"))?;
    ip_words(&format!("-n {name} addr add {ip}/24 dev eth0"))?;
    ip_words(&format!("-n {name} link set eth0 up"))?;
    ip_words(&format!("-n {name} link set lo up"))
}

/// Takes machines to the other switch, or back.
pub fn move_to(switch: &str, machines: &[&Machine]) -> Result<(), Error> {
    machines
        .iter()
        .try_for_each(|machine| ip_words(&format!("link set v-{} master {switch}", machine.name())))
}

/// Until nothing more fits.
pub fn fill(path: &Path) -> Result<(), Error> {
    let mut file = File::create(path)?;
    let piece = vec![0; 1 << 20];
    loop {
        match std::io::Write::write(&mut file, &piece) {
            Ok(written) if written > 0 => {}
            Err(error) if error.kind() != std::io::ErrorKind::StorageFull => return Err(error.into()),
            _ => return Ok(()),
        }
    }
}
