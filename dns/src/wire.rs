//! From questions to zones and back: RFC 1035 messages.

use crate::configuration::{Hosts, is_below};
use crate::zone::{self, Answer, Data, Directory, QueryType, Record as Fact, Zone};
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::net::IpAddr;

/// Seconds that what is said of the zone itself may be kept.
const TTL: u32 = 5;
/// Where a message's first question begins.
pub const HEADER_BYTES: usize = 12;
/// Largest UDP answer without EDNS (RFC 1035).
const PLAIN_UDP: u16 = 512;
/// Largest UDP answer at all: what passes without fragments (the DNS flag day's figure).
const LARGEST_UDP: u16 = 1232;

/// Aliases of the cluster that are followed one after the other; Services of type ExternalName may point at each other.
const ALIASES: usize = 8;

/// What to do with a question.
pub enum Reply {
    /// Send this.
    Answer(Box<Message>),
    /// Ask others, and send what they say.
    Forward,
    /// Ask others for the alias' target, and put what they say behind these records.
    Follow { answer: Box<Message>, target: Name },
}

fn asked(kind: RecordType) -> QueryType {
    match kind {
        RecordType::A => QueryType::A,
        RecordType::AAAA => QueryType::Aaaa,
        RecordType::SRV => QueryType::Srv,
        RecordType::PTR => QueryType::Ptr,
        RecordType::TXT => QueryType::Txt,
        RecordType::SOA => QueryType::Soa,
        RecordType::NS => QueryType::Ns,
        RecordType::ANY => QueryType::Any,
        _ => QueryType::Other,
    }
}

/// An answer to `request` without records.
pub fn response(request: &Message, code: ResponseCode) -> Message {
    let mut response = Message::response(request.metadata.id, request.metadata.op_code);
    response.metadata.recursion_desired = request.metadata.recursion_desired;
    response.metadata.recursion_available = true;
    response.metadata.response_code = code;
    response.add_queries(request.queries.iter().cloned());
    if let Some(edns) = &request.edns {
        let mut own = hickory_proto::op::Edns::new();
        own.set_max_payload(LARGEST_UDP);
        own.set_version(0);
        own.set_dnssec_ok(edns.flags().dnssec_ok);
        response.set_edns(own);
    }
    response
}

/// How large an answer over UDP may be.
pub fn udp_limit(request: &Message) -> usize {
    let asked = request.edns.as_ref().map_or(PLAIN_UDP, hickory_proto::op::Edns::max_payload);
    usize::from(asked.clamp(PLAIN_UDP, LARGEST_UDP))
}

/// `ttl` are seconds that records of the cluster may be kept.
pub fn reply<D: Directory>(zone: &Zone<D>, ttl: u32, request: &Message) -> Reply {
    let question = match request.queries.as_slice() {
        [question] if request.metadata.op_code == OpCode::Query => question,
        _ => return answer(response(request, ResponseCode::NotImp)),
    };
    if request.metadata.message_type == MessageType::Response {
        return answer(response(request, ResponseCode::FormErr));
    }
    let name = question.name().to_lowercase().to_ascii();
    let name = name.strip_suffix('.').unwrap_or(&name);
    let (code, facts, extra) = match zone.answer(name, asked(question.query_type())) {
        Answer::NotOurs => return Reply::Forward,
        Answer::Found { records, extra } => (ResponseCode::NoError, records, extra),
        Answer::NoData => (ResponseCode::NoError, Vec::new(), Vec::new()),
        Answer::NoName => (ResponseCode::NXDomain, Vec::new(), Vec::new()),
    };
    let mut message = response(request, code);
    message.metadata.authoritative = true;
    if facts.is_empty() {
        deny(&mut message, code, &zone.domain);
    }
    let mut alias = alias_among(&facts);
    message.add_answers(facts.iter().filter_map(|f| record(f, &zone.domain, ttl, question)));
    message.add_additionals(extra.iter().filter_map(|f| record(f, &zone.domain, ttl, question)));
    if question.query_type() == RecordType::CNAME {
        return answer(message);
    }
    let mut seen = vec![name.to_owned()];
    while let Some(target) = alias.take().filter(|_| seen.len() <= ALIASES) {
        let next = target.to_lowercase();
        match zone.answer(&next, asked(question.query_type())) {
            Answer::NotOurs => return follow(message, &target),
            // A ring: every alias of it is told already.
            Answer::Found { .. } if seen.contains(&next) => {}
            Answer::Found { records, .. } => {
                alias = alias_among(&records);
                message.add_answers(records.iter().filter_map(|f| record(f, &zone.domain, ttl, question)));
            }
            // The end of the chain decides about the whole (RFC 6604).
            Answer::NoData => deny(&mut message, ResponseCode::NoError, &zone.domain),
            Answer::NoName => deny(&mut message, ResponseCode::NXDomain, &zone.domain),
        }
        seen.push(next);
    }
    answer(message)
}

/// Behind the name that begins here in a message.
pub fn end_of_name(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            length if length & 0xc0 == 0xc0 => return Some(at + 2),
            length if length & 0xc0 == 0 => at += 1 + usize::from(length),
            _ => return None,
        }
    }
}

/// Behind the question of a message that has one.
pub fn end_of_question(bytes: &[u8]) -> Option<usize> {
    let end = end_of_name(bytes, HEADER_BYTES)? + 4;
    (bytes.get(4..6)? == [0, 1] && end <= bytes.len()).then_some(end)
}

/// What `hosts` says to a question: nothing where it is asked of the others.
pub fn from_hosts(hosts: &Hosts, zone: &str, name: &str, request: &Message) -> Option<Message> {
    let [question] = request.queries.as_slice() else { return None };
    let kind = question.query_type();
    if kind == RecordType::PTR && hosts.reverse {
        let address = zone::reverse_address(name)?;
        let named: Vec<_> = hosts.addresses.iter().filter(|(_, ips)| ips.contains(&address)).collect();
        let mut message = response(request, ResponseCode::NoError);
        message.add_answers(named.iter().filter_map(|(host, _)| {
            let data = RData::PTR(PTR(absolute(host)?));
            Some(Record::from_rdata(question.name().clone(), hosts.ttl, data))
        }));
        return (!named.is_empty()).then_some(message);
    }
    let Some(addresses) = hosts.addresses.get(name) else {
        let goes_on = hosts.fallthrough.as_ref().is_some_and(|zones| zones.iter().any(|z| is_below(name, z)));
        return (!goes_on).then(|| {
            let mut message = response(request, ResponseCode::NXDomain);
            deny(&mut message, ResponseCode::NXDomain, zone);
            message
        });
    };
    let mut message = response(request, ResponseCode::NoError);
    message.metadata.authoritative = true;
    message.add_answers(addresses.iter().filter_map(|ip| {
        let data = match (ip, kind) {
            (IpAddr::V4(ip), RecordType::A | RecordType::ANY) => RData::A(A(*ip)),
            (IpAddr::V6(ip), RecordType::AAAA | RecordType::ANY) => RData::AAAA(AAAA(*ip)),
            _ => return None,
        };
        Some(Record::from_rdata(question.name().clone(), hosts.ttl, data))
    }));
    if message.answers.is_empty() {
        deny(&mut message, ResponseCode::NoError, zone);
    }
    Some(message)
}

/// Says that there is no such record or name, and how long that may be kept (RFC 2308).
pub fn deny(message: &mut Message, code: ResponseCode, domain: &str) {
    message.metadata.response_code = code;
    message.add_authorities(soa(domain));
}

/// Where an alias among the records leads, without the final dot.
fn alias_among(facts: &[Fact]) -> Option<String> {
    facts.iter().find_map(|fact| match &fact.data {
        Data::Cname(target) => Some(target.trim_end_matches('.').to_owned()),
        _ => None,
    })
}

fn follow(message: Message, target: &str) -> Reply {
    match absolute(target) {
        Some(target) => Reply::Follow { answer: Box::new(message), target },
        None => answer(message),
    }
}

/// Puts what others say of an alias' target behind the alias. A "no" takes along what says how long it may be kept
/// (RFC 2308, RFC 6604), and what was cut off stays cut off: the client asks again over TCP.
pub fn join(answer: &mut Message, found: Message) {
    answer.metadata.response_code = found.metadata.response_code;
    answer.metadata.truncation |= found.metadata.truncation;
    answer.add_answers(found.answers);
    answer.add_authorities(found.authorities.into_iter().filter(|r| r.record_type() == RecordType::SOA));
}

fn answer(message: Message) -> Reply {
    Reply::Answer(Box::new(message))
}

fn absolute(name: &str) -> Option<Name> {
    Name::from_ascii(format!("{}.", name.trim_end_matches('.'))).ok()
}

fn record(fact: &Fact, domain: &str, ttl: u32, question: &Query) -> Option<Record> {
    // The name is sent back as it was asked, upper case and all (RFC 1035, 7.3).
    let name = if absolute(&fact.name)? == *question.name() {
        question.name().clone()
    } else {
        absolute(&fact.name)?
    };
    let data = match &fact.data {
        Data::Address(IpAddr::V4(ip)) => RData::A(A(*ip)),
        Data::Address(IpAddr::V6(ip)) => RData::AAAA(AAAA(*ip)),
        Data::Srv { port, target } => RData::SRV(SRV::new(0, 100, *port, absolute(target)?)),
        Data::Cname(target) => RData::CNAME(CNAME(absolute(target)?)),
        Data::Ptr(target) => RData::PTR(PTR(absolute(target)?)),
        Data::Txt(text) => RData::TXT(TXT::new(vec![(*text).to_owned()])),
        Data::Soa => return soa(domain),
        Data::Ns => RData::NS(NS(absolute(&format!("ns.dns.{domain}"))?)),
    };
    Some(Record::from_rdata(name, ttl, data))
}

/// The zone's start of authority, also what says how long a "no" may be kept.
fn soa(domain: &str) -> Option<Record> {
    let serial = u32::try_from(jiff::Timestamp::now().as_second()).unwrap_or(u32::MAX);
    let data = SOA::new(
        absolute(&format!("ns.dns.{domain}"))?,
        absolute(&format!("hostmaster.{domain}"))?,
        serial,
        7200,
        1800,
        86_400,
        TTL,
    );
    Some(Record::from_rdata(absolute(domain)?, TTL, RData::SOA(data)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::tests::zone;

    /// What is answered to a question for a Service: the code, the records, and where the rest is to be asked.
    fn ask(service: &str, kind: RecordType) -> (ResponseCode, Vec<String>, Option<String>) {
        let (message, target) = message(service, kind);
        let records = message.answers.iter().map(|r| format!("{} {}", r.name, r.data)).collect();
        (message.metadata.response_code, records, target)
    }

    fn message(service: &str, kind: RecordType) -> (Message, Option<String>) {
        let name = absolute(&format!("{service}.default.svc.cluster.local")).expect("a name");
        let mut request = Message::query();
        request.add_query(Query::query(name, kind));
        match reply(&zone(), TTL, &request) {
            Reply::Answer(message) => (*message, None),
            Reply::Follow { answer, target } => (*answer, Some(target.to_ascii())),
            Reply::Forward => panic!("forwarded"),
        }
    }

    #[test]
    fn aliases_of_the_cluster_carry_their_targets_addresses() {
        let found = ask("alias", RecordType::A);
        let expected = [
            "alias.default.svc.cluster.local. Second.default.svc.cluster.local.",
            "second.default.svc.cluster.local. web.default.svc.cluster.local.",
            "web.default.svc.cluster.local. 10.43.0.9",
        ];
        assert_eq!(found, (ResponseCode::NoError, expected.map(str::to_owned).to_vec(), None));
        assert_eq!(ask("alias", RecordType::CNAME).1, expected[..1]);
        assert_eq!(ask("alias", RecordType::AAAA).1, expected[..2]);
    }

    #[test]
    fn aliases_that_leave_the_cluster_are_asked_of_others() {
        assert_eq!(ask("out", RecordType::A).2.as_deref(), Some("example.org."));
        let (_, records, target) = ask("further", RecordType::A);
        assert_eq!((records.len(), target.as_deref()), (2, Some("example.org.")));
        assert_eq!(ask("out", RecordType::CNAME).2, None);
    }

    #[test]
    fn aliases_to_nothing_and_to_themselves_end() {
        let lost = ask("lost", RecordType::A);
        assert_eq!((lost.0, lost.1.len(), lost.2), (ResponseCode::NXDomain, 1, None));
        assert_eq!(ask("ring", RecordType::A).1.len(), 1);
        assert_eq!(ask("there", RecordType::A).1.len(), 2, "both aliases of the ring, once each");
        assert_eq!(ask("link-0", RecordType::A).1.len(), ALIASES + 1, "no more of a chain that is too long");
    }

    #[test]
    fn what_others_cut_off_stays_cut_off() {
        let (mut alias, _) = message("out", RecordType::A);
        let mut found = Message::response(7, OpCode::Query);
        found.metadata.truncation = true;
        found.metadata.response_code = ResponseCode::NXDomain;
        found.add_authorities(soa("example.org"));
        join(&mut alias, found);
        assert!(alias.metadata.truncation);
        assert_eq!((alias.metadata.response_code, alias.authorities.len()), (ResponseCode::NXDomain, 1));
        assert_eq!(alias.answers.len(), 1);
    }

    #[test]
    fn every_no_says_how_long_it_may_be_kept() {
        for (service, kind, code) in [
            ("web", RecordType::TXT, ResponseCode::NoError),
            ("none", RecordType::A, ResponseCode::NXDomain),
            ("alias", RecordType::AAAA, ResponseCode::NoError),
            ("lost", RecordType::A, ResponseCode::NXDomain),
        ] {
            let (message, _) = message(service, kind);
            assert_eq!(message.metadata.response_code, code, "{service}");
            let told = message.authorities.iter().map(Record::record_type).collect::<Vec<_>>();
            assert_eq!(told, [RecordType::SOA], "{service}");
        }
        assert!(message("alias", RecordType::A).0.authorities.is_empty());
    }
}
