//! What each plugin of a Corefile means here.

use super::corefile::Directive;
use super::{
    CacheSettings, Cluster, Configuration, Forward, Given, Hosts, Kept, Listen, Mistake, PodNames, Policy,
    Refresh, Upstream, View, normal, zones_of,
};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// CoreDNS' figures.
const CACHE_CAPACITY: usize = 9_984;
const LONGEST_SUCCESS: u64 = 3_600;
const LONGEST_DENIAL: u64 = 1_800;
const SHORTEST: u64 = 5;
const STALE: u64 = 3_600;
const FAILURE: u64 = 5;
const MOST_FAILURE: u64 = 300;
const MOST_UPSTREAMS: usize = 15;
const CLUSTER_TTL: u32 = 5;
const MOST_TTL: u32 = 3_600;
const HOSTS_TTL: u32 = 3_600;
const REVERSE: [&str; 2] = ["in-addr.arpa", "ip6.arpa"];

type Outcome = Result<(), Vec<Mistake>>;

/// Takes one directive of a server block in.
pub fn apply(all: &mut Configuration, view: &mut View, directive: &Directive, given: &Given) -> Outcome {
    match directive.name.as_str() {
        "errors" => plain(directive).map(|()| view.errors = true),
        "log" => plain(directive).map(|()| view.log = true),
        // A loop is seen by the address: the server never asks itself. A change is followed without a word.
        "loop" | "reload" => plain(directive),
        "loadbalance" => balance(directive).map(|()| view.rotate = true),
        "prometheus" => listen(directive, 9153).map(|at| all.metrics = Some(at)),
        "health" => listen(directive, 8080).map(|at| all.health = Some(at)),
        "ready" => listen(directive, 8181).map(|at| all.ready = Some(at)),
        "kubernetes" => once(directive, &mut view.cluster, cluster(directive, given)),
        "hosts" => once(directive, &mut view.hosts, hosts(directive)),
        "forward" => once(directive, &mut view.forward, forward(directive)),
        "cache" => once(directive, &mut view.cache, cache(directive, given)),
        other => one(directive, format!("{other}: this server has no such plugin")),
    }
}

fn one<T>(directive: &Directive, why: impl Into<String>) -> Result<T, Vec<Mistake>> {
    Err(vec![Mistake::new(directive.line, why)])
}

fn once<T>(directive: &Directive, place: &mut Option<T>, read: Result<T, Vec<Mistake>>) -> Outcome {
    let read = read?;
    if place.is_some() {
        return one(directive, format!("{}: a server block has it once", directive.name));
    }
    *place = Some(read);
    Ok(())
}

/// One that takes neither arguments nor a block.
fn plain(directive: &Directive) -> Outcome {
    if directive.arguments.is_empty() && directive.block.is_empty() {
        return Ok(());
    }
    one(directive, format!("{}: takes no settings here", directive.name))
}

fn balance(directive: &Directive) -> Outcome {
    match directive.arguments.as_slice() {
        [] => plain(directive),
        [policy] if policy == "round_robin" && directive.block.is_empty() => Ok(()),
        _ => one(directive, "loadbalance: round_robin is the one policy"),
    }
}

fn listen(directive: &Directive, port: u16) -> Result<Listen, Vec<Mistake>> {
    if let Some(line) = directive.block.first() {
        return one(line, format!("{}.{}: is not known here", directive.name, line.name));
    }
    let parsed = match directive.arguments.as_slice() {
        [] => Some(Listen { ip: None, port }),
        [address] => match address.strip_prefix(':') {
            Some(port) => port.parse().ok().map(|port| Listen { ip: None, port }),
            None => address.parse::<SocketAddr>().ok().map(|a| Listen { ip: Some(a.ip()), port: a.port() }),
        },
        _ => None,
    };
    parsed
        .filter(|at| at.port != 0)
        .map_or_else(|| one(directive, format!("{}: takes an address and a port", directive.name)), Ok)
}

/// The arguments of a line as values; `what` says what they are.
fn values<T: FromStr>(line: &Directive, most: usize, what: &str) -> Result<Vec<T>, Vec<Mistake>> {
    let values: Result<Vec<T>, _> = line.arguments.iter().map(|word| word.parse()).collect();
    match values {
        Ok(values) if (1..=most).contains(&values.len()) && line.block.is_empty() => Ok(values),
        _ => one(line, format!("{}: takes {what}", line.name)),
    }
}

fn zones(line: &Directive, words: &[String]) -> Result<Vec<String>, Vec<Mistake>> {
    let zones: Result<Vec<Vec<String>>, String> = words.iter().map(|word| zones_of(word)).collect();
    zones.map(|zones| zones.concat()).or_else(|why| one(line, format!("{}: {why}", line.name)))
}

fn cluster(directive: &Directive, given: &Given) -> Result<Cluster, Vec<Mistake>> {
    let named = zones(directive, &directive.arguments)?;
    let other =
        named.iter().find(|zone| **zone != given.domain && !REVERSE.iter().any(|r| super::is_below(zone, r)));
    if let Some(other) = other {
        return one(directive, format!("kubernetes: the cluster's domain is {}, not {other}", given.domain));
    }
    let reverse = named.iter().any(|zone| *zone != given.domain);
    let mut cluster =
        Cluster { ttl: CLUSTER_TTL, pods: PodNames::Disabled, reverse, fallthrough: Vec::new() };
    each(directive, |line| match line.name.as_str() {
        "ttl" => match values::<u32>(line, 1, "seconds, at most 3600")?.as_slice() {
            [ttl @ 0..=MOST_TTL] => {
                cluster.ttl = *ttl;
                Ok(())
            }
            _ => one(line, "ttl: takes seconds, at most 3600"),
        },
        "pods" => match line.arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["disabled"] => {
                cluster.pods = PodNames::Disabled;
                Ok(())
            }
            ["insecure"] => {
                cluster.pods = PodNames::Insecure;
                Ok(())
            }
            ["verified"] => {
                one(line, "pods: verified would need every pod in memory; disabled and insecure work")
            }
            _ => one(line, "pods: takes disabled or insecure"),
        },
        "fallthrough" => {
            cluster.fallthrough =
                if line.arguments.is_empty() { vec![String::new()] } else { zones(line, &line.arguments)? };
            Ok(())
        }
        other => one(line, format!("kubernetes.{other}: is not known here")),
    })?;
    Ok(cluster)
}

fn each(directive: &Directive, mut take: impl FnMut(&Directive) -> Outcome) -> Outcome {
    let mistakes: Vec<Mistake> =
        directive.block.iter().filter_map(|line| take(line).err()).flatten().collect();
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
}

fn hosts(directive: &Directive) -> Result<Hosts, Vec<Mistake>> {
    if !directive.arguments.is_empty() {
        return one(directive, "hosts: takes its entries in the block, not from a file");
    }
    let mut hosts = Hosts { ttl: HOSTS_TTL, reverse: true, ..Hosts::default() };
    each(directive, |line| match line.name.as_str() {
        "ttl" => {
            hosts.ttl = values::<u32>(line, 1, "seconds")?[0];
            Ok(())
        }
        "no_reverse" => plain(line).map(|()| hosts.reverse = false),
        "fallthrough" => {
            hosts.fallthrough = Some(if line.arguments.is_empty() {
                vec![String::new()]
            } else {
                zones(line, &line.arguments)?
            });
            Ok(())
        }
        address => {
            let Ok(ip) = address.parse::<IpAddr>() else {
                return one(line, format!("hosts.{address}: is neither an address nor a setting known here"));
            };
            for name in &line.arguments {
                hosts.addresses.entry(normal(name)).or_default().push(ip);
            }
            Ok(())
        }
    })?;
    Ok(hosts)
}

fn upstream(word: &str) -> Result<Upstream, String> {
    if word.starts_with('/') {
        return Ok(Upstream::ResolvConf(PathBuf::from(word)));
    }
    let plain = word.strip_prefix("dns://").unwrap_or(word);
    if let Ok(ip) = plain.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return Ok(Upstream::Address(SocketAddr::new(ip, 53)));
    }
    plain
        .parse()
        .map(Upstream::Address)
        .map_err(|_| format!("forward: {word} is no address of a server of DNS, nor a file"))
}

fn forward(directive: &Directive) -> Result<Forward, Vec<Mistake>> {
    let [from, to @ ..] = directive.arguments.as_slice() else {
        return one(directive, "forward: takes a name and where to ask for what is below it");
    };
    if to.is_empty() || to.len() > MOST_UPSTREAMS {
        return one(directive, "forward: takes one to 15 servers");
    }
    let upstreams: Result<Vec<_>, _> = to.iter().map(|word| upstream(word)).collect();
    let upstreams = upstreams.or_else(|why| one(directive, why))?;
    let mut forward = Forward {
        from: zones(directive, std::slice::from_ref(from))?.concat(),
        upstreams,
        except: Vec::new(),
        policy: Policy::default(),
        force_tcp: false,
        max_concurrent: None,
    };
    each(directive, |line| match line.name.as_str() {
        "except" => zones(line, &line.arguments).map(|more| forward.except.extend(more)),
        "force_tcp" => plain(line).map(|()| forward.force_tcp = true),
        // What UDP cannot carry is asked for again by TCP by the client, as it says.
        "prefer_udp" => plain(line),
        "max_concurrent" => {
            let most = values::<usize>(line, 1, "a number")?[0];
            forward.max_concurrent = (most > 0).then_some(most);
            Ok(())
        }
        "policy" => {
            forward.policy = match line.arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                ["random"] => Policy::Random,
                ["round_robin"] => Policy::RoundRobin,
                ["sequential"] => Policy::Sequential,
                _ => return one(line, "policy: takes random, round_robin or sequential"),
            };
            Ok(())
        }
        other => one(line, format!("forward.{other}: is not known here")),
    })?;
    Ok(forward)
}

fn kept(line: &Directive, kept: &mut Option<Kept>) -> Outcome {
    let numbers =
        values::<u64>(line, 3, "a number of answers, and the longest and shortest time in seconds")?;
    let kept = kept.get_or_insert(Kept { capacity: 0, longest: Duration::ZERO, shortest: Duration::ZERO });
    kept.capacity = usize::try_from(numbers[0]).unwrap_or(usize::MAX).min(10 * CACHE_CAPACITY);
    if let Some(longest) = numbers.get(1) {
        kept.longest = Duration::from_secs(*longest);
    }
    if let Some(shortest) = numbers.get(2) {
        kept.shortest = Duration::from_secs(*shortest);
    }
    Ok(())
}

fn cache(directive: &Directive, given: &Given) -> Result<CacheSettings, Vec<Mistake>> {
    let longest = match directive.arguments.as_slice() {
        [] => None,
        [seconds] => match seconds.parse::<u64>() {
            Ok(seconds @ 1..) => Some(seconds),
            _ => return one(directive, "cache: takes a time in seconds"),
        },
        _ => return one(directive, "cache: names are chosen by the server block, not by more arguments"),
    };
    let new = |usual: u64| {
        let longest = Duration::from_secs(longest.unwrap_or(usual).min(usual));
        Some(Kept { capacity: CACHE_CAPACITY, longest, shortest: Duration::from_secs(SHORTEST) })
    };
    let mut cache = CacheSettings {
        success: new(LONGEST_SUCCESS),
        denial: new(LONGEST_DENIAL),
        failure: Duration::from_secs(FAILURE),
        stale: None,
    };
    each(directive, |line| cache_line(line, given, &mut cache))?;
    Ok(cache)
}

fn cache_line(line: &Directive, given: &Given, cache: &mut CacheSettings) -> Result<(), Vec<Mistake>> {
    match line.name.as_str() {
        "success" => kept(line, &mut cache.success),
        "denial" => kept(line, &mut cache.denial),
        "servfail" => {
            let [word] = line.arguments.as_slice() else { return one(line, "servfail: takes a time") };
            let time = duration(word).filter(|time| time.as_secs() <= MOST_FAILURE);
            cache.failure =
                time.map_or_else(|| one(line, "servfail: takes a time of at most five minutes"), Ok)?;
            Ok(())
        }
        "serve_stale" => {
            cache.stale = Some(serve_stale(line)?);
            Ok(())
        }
        "disable" => disable(line, given, cache),
        other => one(line, format!("cache.{other}: is not known here")),
    }
}

/// For how long stale answers are given, and how they are refreshed.
fn serve_stale(line: &Directive) -> Result<(Duration, Refresh), Vec<Mistake>> {
    let (time, mode) = match line.arguments.as_slice() {
        [] => (Some(Duration::from_secs(STALE)), None),
        [time] => (duration(time), None),
        [time, mode] => (duration(time), Some(mode.as_str())),
        _ => (None, None),
    };
    let refresh = match mode {
        None | Some("immediate") => Refresh::Immediate,
        Some("verify") => Refresh::Verify,
        Some(_) => return one(line, "serve_stale: refreshes immediate or verify"),
    };
    let time = time.map_or_else(|| one(line, "serve_stale: takes a time and how to refresh"), Ok)?;
    Ok((time, refresh))
}

fn disable(line: &Directive, given: &Given, cache: &mut CacheSettings) -> Result<(), Vec<Mistake>> {
    match line.arguments.first().map(String::as_str) {
        // Names of the cluster are answered from memory and never cached, whatever is said of them.
        Some("success" | "denial") if line.arguments.len() > 1 => {
            if line.arguments[1..].iter().any(|name| normal(name) != given.domain) {
                one(line, "disable: other names are chosen by a server block of their own")
            } else {
                Ok(())
            }
        }
        Some("success") => {
            cache.success = None;
            Ok(())
        }
        Some("denial") => {
            cache.denial = None;
            Ok(())
        }
        _ => one(line, "disable: takes success or denial"),
    }
}

/// Of Go's form, `1h30m`, `5s`, `250ms`.
fn duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let millis = match unit {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1_000,
            "ms" => 1,
            _ => return None,
        };
        total += Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(millis)?);
        rest = after;
    }
    (!text.is_empty()).then_some(total)
}
