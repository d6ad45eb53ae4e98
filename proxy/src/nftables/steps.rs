//! How the table gets from one state to another without one packet that meets neither.
//!
//! A transaction takes effect between two looks of one packet: having found its Service as it was, it looks for the endpoint
//! as it is. So what is looked up first changes alone, after all that it leads to is there and before what it led to goes.

use super::base::family_word;
use super::entries::{Entries, Entry, Thing};
use crate::family::Family;
use std::collections::BTreeMap;
use std::fmt::{Arguments, Write};

/// Three transactions, each empty where there is nothing to do: what is new and not looked for yet, what packets find
/// first, and what no packet looks for any more.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Steps {
    pub add: String,
    pub switch: String,
    pub remove: String,
}

impl Steps {
    /// From one state to another.
    pub fn between(table: &str, family: Family, was: &Entries, is: &Entries) -> Self {
        let writer = Writer { ip: family_word(family), table };
        let (going, coming) = (only_in(was, is), only_in(is, was));
        let replaced = |entry: &Entry, other: &Entries| other.first(&entry.map, &entry.key).is_some();
        let (first, behind) = split(coming, |entry| is_behind(entry) && !replaced(entry, was));
        let (last_first, left) = split(going, |entry| is_behind(entry) && !replaced(entry, is));
        let mut steps = Self::default();
        writer.things(&mut steps.add, was, is);
        writer.add(&mut steps.add, &behind);
        writer.delete(&mut steps.switch, &last_first);
        writer.add(&mut steps.switch, &first);
        writer.delete(&mut steps.remove, &left);
        writer.gone(&mut steps.remove, was, is);
        steps
    }

    /// All in one, for a table that no packet looks into yet.
    pub fn at_once(self) -> String {
        self.add + &self.switch + &self.remove
    }

    /// In their order.
    pub fn each(&self) -> impl Iterator<Item = &str> {
        [&self.add, &self.switch, &self.remove]
            .into_iter()
            .map(String::as_str)
            .filter(|step| !step.is_empty())
    }
}

/// Whether packets look an entry up only after another one led them there, or where its coming early changes nothing.
/// Ranges of sources are not: old and new ones may overlap, and are exchanged in one transaction.
fn is_behind(entry: &Entry) -> bool {
    entry.map.contains("endpoints-") && !entry.map.starts_with("no-")
        || ["hairpin", "cluster-ips"].contains(&&*entry.map)
}

/// Maps and sets with their entries.
type ByMap<'a> = BTreeMap<&'a str, Vec<&'a Entry>>;

/// What is in force of one state and not of the other.
fn only_in<'a>(one: &'a Entries, other: &Entries) -> Vec<&'a Entry> {
    one.in_force().filter(|entry| other.first(&entry.map, &entry.key) != Some(entry)).collect()
}

/// Those that are not `behind`, and those that are.
fn split<'a>(entries: Vec<&'a Entry>, behind: impl Fn(&Entry) -> bool) -> (ByMap<'a>, ByMap<'a>) {
    let mut both = (ByMap::new(), ByMap::new());
    for entry in entries {
        let side = if behind(entry) { &mut both.1 } else { &mut both.0 };
        side.entry(&entry.map).or_default().push(entry);
    }
    both
}

struct Writer<'a> {
    ip: &'static str,
    table: &'a str,
}

fn line(text: &mut String, words: Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{words}");
}

impl Writer<'_> {
    /// New chains and sets; rules only after all chains that they may lead to.
    fn things(&self, text: &mut String, was: &Entries, is: &Entries) {
        let (ip, table) = (self.ip, self.table);
        let new: Vec<_> = is.things.iter().filter(|(name, _)| !was.things.contains_key(*name)).collect();
        for (name, (thing, _)) in &new {
            match thing {
                Thing::Set(declaration) => {
                    line(text, format_args!("add set {ip} {table} {name} {declaration}"))
                }
                Thing::Chain(_) => line(text, format_args!("add chain {ip} {table} {name}")),
            }
        }
        for (name, (thing, _)) in &new {
            if let Thing::Chain(rules) = thing {
                rules.iter().for_each(|rule| line(text, format_args!("add rule {ip} {table} {name} {rule}")));
            }
        }
    }

    fn delete(&self, text: &mut String, by_map: &ByMap<'_>) {
        let (ip, table) = (self.ip, self.table);
        for (map, entries) in by_map {
            let keys: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
            line(text, format_args!("delete element {ip} {table} {map} {{ {} }}", keys.join(", ")));
        }
    }

    fn add(&self, text: &mut String, by_map: &ByMap<'_>) {
        let (ip, table) = (self.ip, self.table);
        let colon = |entry: &&Entry| match entry.value.as_str() {
            "" => entry.key.clone(),
            value => format!("{} : {value}", entry.key),
        };
        for (map, entries) in by_map {
            let entries: Vec<String> = entries.iter().map(colon).collect();
            line(text, format_args!("add element {ip} {table} {map} {{ {} }}", entries.join(", ")));
        }
    }

    /// Chains are emptied before any goes: one may lead to another.
    fn gone(&self, text: &mut String, was: &Entries, is: &Entries) {
        let (ip, table) = (self.ip, self.table);
        let gone: Vec<_> = was.things.iter().filter(|(name, _)| !is.things.contains_key(*name)).collect();
        let kind = |thing: &Thing| if matches!(thing, Thing::Chain(_)) { "chain" } else { "set" };
        for (name, (thing, _)) in &gone {
            if matches!(thing, Thing::Chain(_)) {
                line(text, format_args!("flush chain {ip} {table} {name}"));
            }
        }
        for (name, (thing, _)) in &gone {
            line(text, format_args!("delete {} {ip} {table} {name}", kind(thing)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iptables::rules::tests::{networks, port};
    use crate::nftables::entries::of_service;

    fn steps(was: &[&str], is: &[&str]) -> Steps {
        let of = |ips: &[&str]| {
            let endpoints: Vec<(&str, bool)> = ips.iter().map(|ip| (*ip, false)).collect();
            of_service(&[port(&endpoints)], Family::V4, &networks())
        };
        Steps::between("t", Family::V4, &of(was), &of(is))
    }

    #[test]
    fn more_endpoints_are_there_before_they_are_chosen() {
        let steps = steps(&["10.42.1.2"], &["10.42.1.3", "10.42.1.4"]);
        assert!(steps.add.contains("add chain ip t endpoints-tcp-2\n"), "{steps:#?}");
        assert!(steps.add.contains("{ 10.43.0.9 . 80 . 1 : 10.42.1.4 . 8080 }"), "{steps:#?}");
        assert!(!steps.add.contains("service-ips") && !steps.add.contains(". 80 . 0"), "{steps:#?}");
        assert!(steps.switch.contains("{ 10.43.0.9 . tcp . 80 : goto endpoints-tcp-2 }"), "{steps:#?}");
        assert!(steps.switch.contains("{ 10.43.0.9 . 80 . 0 : 10.42.1.3 . 8080 }"), "{steps:#?}");
        assert_eq!(steps.remove, "flush chain ip t endpoints-tcp-1\ndelete chain ip t endpoints-tcp-1\n");
    }

    #[test]
    fn fewer_endpoints_go_when_nobody_chooses_them_any_more() {
        let steps = steps(&["10.42.1.2", "10.42.1.3"], &["10.42.1.3"]);
        assert!(steps.switch.contains("{ 10.43.0.9 . 80 . 0 : 10.42.1.3 . 8080 }"), "{steps:#?}");
        assert!(!steps.switch.contains(". 80 . 1"), "{steps:#?}");
        assert!(
            steps.remove.contains("delete element ip t endpoints-tcp { 10.43.0.9 . 80 . 1 }"),
            "{steps:#?}"
        );
    }

    #[test]
    fn an_endpoint_in_the_place_of_another_is_one_transaction() {
        let steps = steps(&["10.42.1.2"], &["10.42.1.3"]);
        assert_eq!(steps.each().count(), 1, "{steps:#?}");
        assert!(
            steps.switch.starts_with("delete element ip t endpoints-tcp { 10.43.0.9 . 80 . 0 }"),
            "{steps:#?}"
        );
    }
}
