use super::*;
use hickory_proto::op::{Edns, OpCode, Query};
use hickory_proto::rr::rdata::{A, SOA};
use hickory_proto::rr::{Name, Record};

const MINUTE: Duration = Duration::from_secs(60);

fn settings(stale: Option<(Duration, Refresh)>) -> CacheSettings {
    let kept = |capacity| Kept { capacity, longest: MINUTE, shortest: Duration::from_secs(5) };
    CacheSettings { success: Some(kept(20)), denial: Some(kept(20)), failure: Duration::from_secs(5), stale }
}

fn name(text: &str) -> Name {
    Name::from_ascii(text).expect("a name")
}

fn request(text: &str, id: u16) -> Message {
    let mut message = Message::query();
    message.metadata.id = id;
    message.add_query(Query::query(name(text), RecordType::A));
    message
}

fn reply(request: &Message, ttl: u32) -> Message {
    let mut message = Message::response(request.metadata.id, OpCode::Query);
    message.add_queries(request.queries.iter().cloned());
    message.add_answer(Record::from_rdata(
        request.queries[0].name().clone(),
        ttl,
        RData::A(A([192, 0, 2, 1].into())),
    ));
    message
}

fn denial(request: &Message, minimum: u32) -> Message {
    let mut message = Message::response(request.metadata.id, OpCode::Query);
    message.metadata.response_code = ResponseCode::NXDomain;
    message.add_queries(request.queries.iter().cloned());
    let soa = SOA::new(name("ns.test."), name("root.test."), 1, 2, 3, 4, minimum);
    message.add_authority(Record::from_rdata(name("test."), 900, RData::SOA(soa)));
    message
}

/// The cache's answer, and what it is.
fn known(cache: &Cache, request: &Message, now: Instant) -> (&'static str, Option<Message>) {
    let question = request.to_vec().expect("a message");
    let read = |bytes: Vec<u8>| Message::from_vec(&bytes).ok();
    match cache.get(&Key::of(request).expect("a key"), &question, now) {
        Known::Fresh(bytes) => ("fresh", read(bytes)),
        Known::Stale(bytes) => ("stale", read(bytes)),
        Known::Nothing => ("nothing", None),
    }
}

fn put(cache: &Cache, request: &Message, answer: &Message, now: Instant) {
    cache.put(Key::of(request).expect("a key"), &answer.to_vec().expect("a message"), now);
}

#[test]
fn an_answer_comes_again_as_it_was_asked_with_the_time_that_is_left() {
    let (cache, now) = (Cache::new(settings(None)), Instant::now());
    let mut first = request("Www.Test.", 7);
    first.set_edns(Edns::new());
    let mut answered = reply(&first, 40);
    answered.set_edns(Edns::new());
    put(&cache, &first, &answered, now);
    let mut again = request("wWW.test.", 9);
    again.set_edns(Edns::new());
    let (what, message) = known(&cache, &again, now + Duration::from_secs(15));
    let message = message.expect("an answer");
    assert_eq!((what, message.metadata.id, message.answers[0].ttl), ("fresh", 9, 25));
    assert_eq!(message.queries[0].name().to_ascii(), "wWW.test.");
    assert!(message.edns.is_some());
    assert_eq!(known(&cache, &again, now + Duration::from_secs(41)).0, "nothing");
    assert_eq!(
        known(&cache, &request("www.test.", 1), now).0,
        "nothing",
        "without EDNS it is another question"
    );
}

#[test]
fn a_no_is_kept_as_long_as_its_zone_allows_and_settings_bound_all() {
    let (cache, now) = (Cache::new(settings(None)), Instant::now());
    let (absent, long, short) =
        (request("absent.test.", 1), request("long.test.", 2), request("short.test.", 3));
    put(&cache, &absent, &denial(&absent, 10), now);
    put(&cache, &long, &reply(&long, 86_400), now);
    put(&cache, &short, &reply(&short, 0), now);
    let at = |seconds| now + Duration::from_secs(seconds);
    assert_eq!((known(&cache, &absent, at(9)).0, known(&cache, &absent, at(10)).0), ("fresh", "nothing"));
    assert_eq!((known(&cache, &long, at(59)).0, known(&cache, &long, at(60)).0), ("fresh", "nothing"));
    assert_eq!((known(&cache, &short, at(4)).0, known(&cache, &short, at(5)).0), ("fresh", "nothing"));
}

#[test]
fn old_answers_are_given_as_they_are_wanted() {
    let now = Instant::now();
    let (later, never) = (now + MINUTE, now + MINUTE * 62);
    for (refresh, at_once) in [(Refresh::Immediate, "stale"), (Refresh::Verify, "nothing")] {
        let cache = Cache::new(settings(Some((MINUTE * 60, refresh))));
        let asked = request("a.test.", 1);
        put(&cache, &asked, &reply(&asked, 30), now);
        // A failure does not take its place.
        let mut failure = Message::response(1, OpCode::Query);
        failure.metadata.response_code = ResponseCode::ServFail;
        failure.add_queries(asked.queries.iter().cloned());
        put(&cache, &asked, &failure, later);
        assert_eq!(known(&cache, &asked, later).0, at_once);
        if refresh == Refresh::Immediate {
            assert_eq!(known(&cache, &asked, later).0, "fresh", "somebody asks already");
        }
        let (key, question) = (Key::of(&asked).expect("a key"), asked.to_vec().expect("bytes"));
        let old = cache.stale(&key, &question, later).expect("an old answer");
        let old = Message::from_vec(&old).expect("a message");
        assert_eq!((old.answers[0].ttl, old.metadata.response_code), (0, ResponseCode::NoError));
        assert_eq!(cache.stale(&key, &question, never), None);
    }
}

#[test]
fn what_is_not_about_the_question_or_cut_off_is_not_kept() {
    let (cache, now) = (Cache::new(settings(None)), Instant::now());
    let (asked, other) = (request("a.test.", 1), request("b.test.", 1));
    put(&cache, &asked, &reply(&other, 30), now);
    let mut cut = reply(&asked, 30);
    cut.metadata.truncation = true;
    put(&cache, &asked, &cut, now);
    let key = Key::of(&asked).expect("a key");
    cache.put(key, &[0; 11], now);
    assert_eq!(cache.entries(), (0, 0));
}

#[test]
fn a_full_cache_forgets_the_oldest() {
    let (cache, now) = (Cache::new(settings(None)), Instant::now());
    for n in 0..50u64 {
        let asked = request(&format!("n{n}.test."), 1);
        put(&cache, &asked, &reply(&asked, 60), now + Duration::from_secs(n));
    }
    assert!(cache.entries().0 <= 20, "{:?}", cache.entries());
    assert_eq!(known(&cache, &request("n49.test.", 1), now + Duration::from_secs(50)).0, "fresh");
    assert_eq!(known(&cache, &request("n0.test.", 1), now + Duration::from_secs(50)).0, "nothing");
}

#[test]
fn damaged_messages_are_no_answers() {
    let asked = request("a.test.", 1);
    let whole = reply(&asked, 30).to_vec().expect("bytes");
    for length in 0..whole.len() {
        let _ = places_of_times(&whole[..length]);
        let _ = end_of_name(&whole[..length], HEADER_BYTES);
    }
    assert_eq!(places_of_times(&whole).map(|places| places.len()), Some(1));
}
