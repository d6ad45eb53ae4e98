//! What is answered to a question: by the server block that it comes to, from memory, a cache, or others.

use super::{LARGEST_TCP, Next, Outside, Server};
use crate::cache::{Key, Known};
use crate::configuration::{PodNames, is_below, normal};
use crate::forward::{ForwardError, code_name};
use crate::metrics::{Metric, SERVER};
use crate::views::ActiveView;
use crate::wire::{self, Reply};
use crate::zone::Directory;
use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RecordType};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl<D: Directory + Send + Sync + 'static> Server<D> {
    /// What the server itself says to a whole message; nothing to what is no question at all.
    pub(super) fn begin(&self, question: &[u8], client: IpAddr, tcp: bool) -> Option<Next> {
        let begun = Instant::now();
        let request = Message::from_vec(question).ok()?;
        let name = name_of(&request);
        let views = self.views.read().clone();
        let Some(view) = views.of(&name) else {
            return encode(&request, wire::response(&request, ResponseCode::Refused), tcp).map(Next::Send);
        };
        self.count(view, &request, client, tcp);
        if view.settings.log {
            tracing::info!(%client, %name, "asked");
        }
        let (plugin, message) = match self.own_answer(view, &request, &name) {
            Own::Answer(plugin, message) => (plugin, message),
            Own::Follow { answer, target } => {
                let outside = Outside {
                    question: question.to_vec(),
                    view: views.of(&normal(&target.to_ascii())).unwrap_or(view).clone(),
                    request,
                    follow: Some((answer, target)),
                    begun,
                };
                return Some(Next::Outside(Box::new(outside)));
            }
            Own::Others => return self.begin_outside(view, request, &name, question, tcp, begun),
        };
        self.counted(view, message.metadata.response_code.low(), plugin, begun);
        Some(Next::Send(encode(&request, message, tcp)?))
    }

    /// What is known of the names of others, or that they have to be asked.
    fn begin_outside(
        &self,
        view: &Arc<ActiveView>,
        request: Message,
        name: &str,
        question: &[u8],
        tcp: bool,
        begun: Instant,
    ) -> Option<Next> {
        if view.forwarder_of(name).is_none() {
            self.counted(view, ResponseCode::Refused.low(), "", begun);
            return encode(&request, wire::response(&request, ResponseCode::Refused), tcp).map(Next::Send);
        }
        let known =
            view.cache.as_ref().zip(Key::of(&request)).map(|(cache, key)| cache.get(&key, question, begun));
        let limit = limit(&request, tcp);
        let outside = || {
            Box::new(Outside {
                question: question.to_vec(),
                view: view.clone(),
                request,
                follow: None,
                begun,
            })
        };
        let labels = [SERVER, view.zone_label(), ""];
        match known {
            Some(Known::Fresh(answer)) => {
                let kind = if code_of(&answer) == 0 { "success" } else { "denial" };
                self.metrics.add(Metric::CacheHits, &[labels[0], kind, labels[1], labels[2]], 1);
                self.counted(view, code_of(&answer), "cache", begun);
                Some(Next::Send(shortened(answer, limit)))
            }
            Some(Known::Stale(answer)) => {
                self.metrics.add(Metric::CacheStale, &labels, 1);
                self.counted(view, code_of(&answer), "cache", begun);
                Some(Next::SendOld(shortened(answer, limit), outside()))
            }
            known => {
                if known.is_some() {
                    self.metrics.add(Metric::CacheMisses, &labels, 1);
                }
                Some(Next::Outside(outside()))
            }
        }
    }

    /// What `hosts` and `kubernetes` of a server block say.
    fn own_answer(&self, view: &ActiveView, request: &Message, name: &str) -> Own {
        if let Some(hosts) = &view.settings.hosts
            && let Some(message) = wire::from_hosts(hosts, view.zone_label(), name, request)
        {
            return Own::Answer("hosts", message);
        }
        let Some(cluster) = &view.settings.cluster else { return Own::Others };
        let is_reverse = name.ends_with(".in-addr.arpa") || name.ends_with(".ip6.arpa");
        if is_reverse && !cluster.reverse {
            return Own::Others;
        }
        let goes_on = || cluster.fallthrough.iter().any(|zone| is_below(name, zone));
        let unknown = || {
            let mut message = wire::response(request, ResponseCode::NXDomain);
            wire::deny(&mut message, ResponseCode::NXDomain, &self.zone.domain);
            if goes_on() { Own::Others } else { Own::Answer("kubernetes", message) }
        };
        let is_pod = || is_below(name, &format!("pod.{}", self.zone.domain));
        if cluster.pods == PodNames::Disabled && is_pod() {
            return unknown();
        }
        match wire::reply(&self.zone, cluster.ttl, request) {
            Reply::Answer(message) => {
                let code = message.metadata.response_code;
                if code == ResponseCode::NXDomain && message.answers.is_empty() && goes_on() {
                    return Own::Others;
                }
                let mut message = *message;
                if view.settings.rotate {
                    turn(&mut message, self.turned.fetch_add(1, Ordering::Relaxed));
                }
                Own::Answer("kubernetes", message)
            }
            Reply::Follow { answer, target } => Own::Follow { answer, target },
            Reply::Forward if is_reverse => unknown(),
            Reply::Forward => Own::Others,
        }
    }

    /// The answer with the help of others.
    pub(super) async fn ask(&self, outside: Outside, tcp: bool) -> Option<Vec<u8>> {
        let Outside { request, question, view, follow, begun } = outside;
        let limit = limit(&request, tcp);
        let answer = match follow {
            Some((answer, target)) => encode(&request, self.follow(&view, *answer, target, tcp).await, tcp),
            None => {
                let name = name_of(&request);
                self.answer_of_others(&view, &request, &name, &question, tcp)
                    .await
                    .map(|answer| shortened(answer, limit))
            }
        }?;
        self.counted(&view, code_of(&answer), "forward", begun);
        Some(answer)
    }

    /// What others say to a question, or what they said once where they say nothing now.
    pub(super) async fn answer_of_others(
        &self,
        view: &ActiveView,
        request: &Message,
        name: &str,
        question: &[u8],
        tcp: bool,
    ) -> Option<Vec<u8>> {
        let kept = view.cache.as_ref().zip(Key::of(request));
        let asked = match view.forwarder_of(name) {
            Some(forwarder) => forwarder.ask(question, tcp).await,
            None => Err(ForwardError::NoResolver),
        };
        if let (Some((cache, key)), Ok(answer)) = (&kept, &asked) {
            cache.put(key.clone(), answer, Instant::now());
        }
        let answer = asked.inspect_err(|error| {
            if view.settings.errors {
                tracing::warn!(%name, %error, "a name outside of the cluster was not resolved");
            } else {
                tracing::debug!(%name, %error, "not forwarded");
            }
        });
        let failed = answer.as_ref().map_or(true, |answer| code_of(answer) == ResponseCode::ServFail.low());
        if let Some((cache, key)) = kept.filter(|_| failed)
            && let Some(old) = cache.stale(&key, question, Instant::now())
        {
            self.metrics.add(Metric::CacheStale, &[SERVER, view.zone_label(), ""], 1);
            return Some(old);
        }
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                let too_many = matches!(error, ForwardError::TooMany(_));
                let code = if too_many { ResponseCode::Refused } else { ResponseCode::ServFail };
                encode(request, wire::response(request, code), tcp)
            }
        }
    }

    /// Puts the addresses of an alias' target behind the alias, as far as others know them.
    async fn follow(&self, view: &ActiveView, mut answer: Message, target: Name, tcp: bool) -> Message {
        let Some(kind) = answer.queries.first().map(Query::query_type) else { return answer };
        let name = normal(&target.to_ascii());
        let mut question = Message::query();
        question.metadata.recursion_desired = true;
        question.add_query(Query::query(target, kind));
        let asked = match question.to_vec() {
            Ok(bytes) => match self.known_of(view, &question, &bytes) {
                Some(known) => Some(known),
                None => self.answer_of_others(view, &question, &name, &bytes, tcp).await,
            },
            Err(_) => None,
        };
        match asked.and_then(|bytes| Message::from_vec(&bytes).ok()) {
            Some(found) => wire::join(&mut answer, found),
            // Nobody knows what the alias stands for.
            None => answer.metadata.response_code = ResponseCode::ServFail,
        }
        answer
    }

    fn known_of(&self, view: &ActiveView, request: &Message, question: &[u8]) -> Option<Vec<u8>> {
        match view.cache.as_ref()?.get(&Key::of(request)?, question, Instant::now()) {
            Known::Fresh(answer) => Some(answer),
            _ => None,
        }
    }

    fn count(&self, view: &ActiveView, request: &Message, client: IpAddr, tcp: bool) {
        let kind = request.queries.first().map_or(RecordType::ZERO, Query::query_type);
        let kind = match kind {
            RecordType::A | RecordType::AAAA | RecordType::SRV | RecordType::PTR | RecordType::TXT => {
                kind.into()
            }
            RecordType::MX | RecordType::NS | RecordType::SOA | RecordType::CNAME | RecordType::HTTPS => {
                kind.into()
            }
            _ => "other",
        };
        let (protocol, family) = (if tcp { "tcp" } else { "udp" }, if client.is_ipv4() { "1" } else { "2" });
        self.metrics.add(Metric::Requests, &[SERVER, view.zone_label(), "", protocol, family, kind], 1);
    }

    fn counted(&self, view: &ActiveView, code: u8, plugin: &str, begun: Instant) {
        let zone = view.zone_label();
        self.metrics.add(Metric::Responses, &[SERVER, zone, "", code_name(code), plugin], 1);
        self.metrics.observe(Metric::Durations, &[SERVER, zone, ""], begun.elapsed());
    }
}

/// What a server block itself says.
enum Own {
    /// By the plugin of this name.
    Answer(&'static str, Message),
    Follow {
        answer: Box<Message>,
        target: Name,
    },
    Others,
}

/// In lower case, without the final dot; empty where there is not one question.
pub(super) fn name_of(request: &Message) -> String {
    match request.queries.as_slice() {
        [question] => normal(&question.name().to_ascii()),
        _ => String::new(),
    }
}

fn code_of(answer: &[u8]) -> u8 {
    answer.get(3).map_or(0, |flags| flags & 15)
}

/// Turns the order of the answers, where all are addresses.
fn turn(message: &mut Message, by: usize) {
    let is_address = |kind| matches!(kind, RecordType::A | RecordType::AAAA);
    if message.answers.len() > 1 && message.answers.iter().all(|record| is_address(record.record_type())) {
        let by = by % message.answers.len();
        message.answers.rotate_left(by);
    }
}

pub(super) fn limit(request: &Message, tcp: bool) -> usize {
    if tcp { LARGEST_TCP } else { wire::udp_limit(request) }
}

/// An answer of others, cut to its question where it is too long: the client asks again over TCP.
pub(super) fn shortened(mut answer: Vec<u8>, limit: usize) -> Vec<u8> {
    if answer.len() <= limit {
        return answer;
    }
    let Some(end) = wire::end_of_question(&answer) else { return answer };
    answer.truncate(end);
    answer[2] |= 2;
    answer[6..12].fill(0);
    answer
}

/// The message as it is sent, cut where it is too long.
pub(super) fn encode(request: &Message, message: Message, tcp: bool) -> Option<Vec<u8>> {
    let bytes = message.to_vec().ok()?;
    if bytes.len() <= limit(request, tcp) { Some(bytes) } else { message.truncate().to_vec().ok() }
}
