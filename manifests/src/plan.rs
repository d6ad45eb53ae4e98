//! What is to be done, by what the files say and what was applied: knows neither disk nor cluster.

use crate::charts::{self, Settings};
use crate::documents::{self, Body, Chart, Document, Id};
use crate::files::{Content, File, Found};
use crate::memory::Applied;
use std::collections::BTreeMap;
use std::path::Path;

/// What one file holds.
#[derive(Debug, PartialEq)]
pub struct Manifest {
    pub hash: String,
    /// Or what is wrong with it.
    pub documents: Result<Vec<Document>, Wrong>,
}

impl Manifest {
    /// Whether a document of it is of this object; `None` where it cannot be read.
    fn holds(&self, id: &Id) -> Option<bool> {
        let documents = self.documents.as_ref().ok()?;
        Some(documents.iter().any(|document| document.id.is_same(id)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is nothing that is applied here.
    Refused(String),
    /// It cannot be read.
    Broken(String),
}

/// One document of one file.
#[derive(Debug, PartialEq)]
pub struct Step<'a> {
    pub file: &'a str,
    pub document: &'a Document,
}

#[derive(Debug, Default, PartialEq)]
pub struct Plan<'a> {
    /// In this order.
    pub apply: Vec<Step<'a>>,
    /// Of no file any more, the last applied first.
    pub prune: Vec<Id>,
    /// What is to be remembered before anything is applied.
    pub remember: Applied,
}

/// Takes files apart.
pub fn manifests(found: &Found) -> BTreeMap<String, Manifest> {
    let of = |file: &File| match &file.content {
        Content::Text(text) => documents::read(text).map_err(Wrong::Broken),
        Content::Chart { archive, settings } => {
            chart(archive, settings.as_deref(), &file.hash).map_err(Wrong::Broken)
        }
        Content::Refused(why) => Err(Wrong::Refused(why.clone())),
    };
    found
        .files
        .iter()
        .map(|(path, file)| (path.clone(), Manifest { hash: file.hash.clone(), documents: of(file) }))
        .collect()
}

fn chart(archive: &Path, settings: Option<&str>, hash: &str) -> Result<Vec<Document>, String> {
    let settings =
        Settings::read(settings.unwrap_or_default()).map_err(|why| format!("its settings: {why}"))?;
    let name = archive.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let id = charts::id(name, &settings)?;
    let chart = Chart { archive: archive.to_owned(), hash: hash.to_owned(), values: settings.values };
    Ok(vec![Document { id, body: Body::Chart(chart) }])
}

/// Namespaces first, then definitions, who may do what, and the rest: what others need is there before they are.
fn rank(id: &Id) -> u8 {
    if id.is_release() {
        // Its hooks may wait for anything.
        return 7;
    }
    match (id.group(), id.kind.as_str()) {
        ("", "Namespace") => 0,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => 1,
        ("scheduling.k8s.io", "PriorityClass") | ("storage.k8s.io", "StorageClass") => 2,
        ("", "ServiceAccount") | ("rbac.authorization.k8s.io", _) => 3,
        ("", "ConfigMap" | "Secret" | "PersistentVolume" | "PersistentVolumeClaim" | "Service") => 4,
        ("admissionregistration.k8s.io" | "apiregistration.k8s.io", _) => 6,
        _ => 5,
    }
}

/// `wanted` says which files are to be applied now. A file that is broken keeps what was applied of it.
pub fn plan<'a>(
    manifests: &'a BTreeMap<String, Manifest>,
    applied: &Applied,
    wanted: impl Fn(&str, &Manifest) -> bool,
) -> Plan<'a> {
    let mut plan = Plan::default();
    for (file, manifest) in manifests {
        let before = applied.get(file).map(Vec::as_slice).unwrap_or_default();
        let mut remembered = before.to_vec();
        if let Ok(documents) = &manifest.documents {
            remembered.retain(|id| documents.iter().all(|document| !document.id.is_same(id)));
            plan.prune.extend(remembered.iter().cloned());
            remembered.extend(documents.iter().map(|document| document.id.clone()));
            if wanted(file, manifest) {
                plan.apply.extend(documents.iter().map(|document| Step { file, document }));
            }
        }
        if !remembered.is_empty() {
            plan.remember.insert(file.clone(), remembered);
        }
    }
    for (file, ids) in applied.iter().filter(|(file, _)| !manifests.contains_key(*file)) {
        plan.prune.extend(ids.iter().cloned());
        plan.remember.insert(file.clone(), ids.clone());
    }
    // A stable order: within a rank files by their paths, documents as they stand.
    plan.apply.sort_by_key(|step| rank(&step.document.id));
    plan.prune.sort_by_key(rank);
    plan.prune.reverse();
    // Moved to another file.
    plan.prune.retain(|id| !is_kept(manifests, applied, id));
    plan
}

/// Files with something that another file made too, which has it no more: theirs is to be there now.
pub fn left_with<'a>(
    manifests: &'a BTreeMap<String, Manifest>,
    applied: &'a Applied,
) -> impl Iterator<Item = &'a str> {
    let holds = |file: &str, id: &Id| manifests.get(file).is_some_and(|one| one.holds(id) != Some(false));
    let given_up = move |file: &str, id: &Id| {
        let mut others = applied.iter().filter(|(other, _)| *other != file);
        others.any(|(other, ids)| ids.iter().any(|one| one.is_same(id)) && !holds(other, id))
    };
    manifests.iter().filter_map(move |(file, manifest)| {
        let documents = manifest.documents.as_ref().ok()?;
        documents.iter().any(|document| given_up(file, &document.id)).then_some(file.as_str())
    })
}

/// Whether some file holds it, or did before it broke.
fn is_kept(manifests: &BTreeMap<String, Manifest>, applied: &Applied, id: &Id) -> bool {
    let kept = |file: &String| applied.get(file).is_some_and(|ids| ids.iter().any(|one| one.is_same(id)));
    manifests.iter().any(|(file, manifest)| manifest.holds(id).unwrap_or_else(|| kept(file)))
}

/// What is remembered once these have gone, and those that stand in other files.
pub fn forget(remembered: &Applied, manifests: &BTreeMap<String, Manifest>, gone: &[Id]) -> Applied {
    let still = |file: &String, id: &Id| match manifests.get(file).map(|manifest| manifest.holds(id)) {
        Some(Some(true) | None) => true,
        // No file says so any more: until it has gone, or where another file has taken it over.
        _ => !gone.iter().any(|one| one.is_same(id)) && !is_kept(manifests, remembered, id),
    };
    let kept = |(file, ids): (&String, &Vec<Id>)| {
        let ids: Vec<Id> = ids.iter().filter(|id| still(file, id)).cloned().collect();
        (!ids.is_empty()).then(|| (file.clone(), ids))
    };
    remembered.iter().filter_map(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(kind: &str, name: &str) -> Id {
        let api_version = match kind {
            "CustomResourceDefinition" => "apiextensions.k8s.io/v1",
            "ClusterRole" => "rbac.authorization.k8s.io/v1",
            "Deployment" => "apps/v1",
            _ => "v1",
        };
        Id { api_version: api_version.into(), kind: kind.into(), namespace: String::new(), name: name.into() }
    }

    fn file(objects: &[(&str, &str)]) -> Manifest {
        let document = |(kind, name): &(&str, &str)| Document {
            id: id(kind, name),
            body: Body::Object(serde_json::Value::Null),
        };
        Manifest { hash: String::new(), documents: Ok(objects.iter().map(document).collect()) }
    }

    fn broken() -> Manifest {
        Manifest { hash: String::new(), documents: Err(Wrong::Broken("no".into())) }
    }

    fn names(ids: &[Id]) -> Vec<&str> {
        ids.iter().map(|id| id.name.as_str()).collect()
    }

    #[test]
    fn what_others_need_comes_first_and_goes_last() {
        let all = BTreeMap::from([
            ("a.yaml".to_owned(), file(&[("Deployment", "web"), ("Namespace", "n")])),
            (
                "b.yaml".to_owned(),
                file(&[("ClusterRole", "r"), ("CustomResourceDefinition", "c"), ("ConfigMap", "m")]),
            ),
        ]);
        let made = plan(&all, &Applied::new(), |_, _| true);
        let order: Vec<&str> = made.apply.iter().map(|step| step.document.id.name.as_str()).collect();
        assert_eq!(order, ["n", "c", "r", "m", "web"]);
        assert_eq!(made.remember.len(), 2);
        let none = BTreeMap::new();
        let pruned = plan(&none, &made.remember, |_, _| true);
        assert_eq!(names(&pruned.prune), ["web", "m", "r", "c", "n"]);
        // Until they have gone they are remembered.
        assert_eq!(pruned.remember, made.remember);
        assert!(forget(&pruned.remember, &none, &pruned.prune).is_empty());
        assert_eq!(
            forget(&pruned.remember, &none, &pruned.prune[..4]),
            Applied::from([("a.yaml".into(), vec![id("Namespace", "n")])])
        );
    }

    #[test]
    fn a_document_that_goes_is_pruned_and_one_that_moves_is_not() {
        let before = Applied::from([("a.yaml".to_owned(), vec![id("ConfigMap", "x"), id("ConfigMap", "y")])]);
        let all = BTreeMap::from([
            ("a.yaml".to_owned(), file(&[])),
            ("b.yaml".to_owned(), file(&[("ConfigMap", "y")])),
        ]);
        let made = plan(&all, &before, |_, _| true);
        assert_eq!(names(&made.prune), ["x"]);
        assert_eq!(
            left_with(&all, &before).collect::<Vec<_>>(),
            ["b.yaml"],
            "a's was the last to be applied"
        );
        let after = forget(&made.remember, &all, &made.prune);
        assert_eq!(after, Applied::from([("b.yaml".to_owned(), vec![id("ConfigMap", "y")])]));
        assert_eq!(left_with(&all, &after).count(), 0);
    }

    #[test]
    fn a_broken_file_keeps_what_it_made() {
        let before = Applied::from([("a.yaml".to_owned(), vec![id("ConfigMap", "x")])]);
        let all = BTreeMap::from([
            ("a.yaml".to_owned(), broken()),
            ("b.yaml".to_owned(), file(&[("ConfigMap", "z")])),
        ]);
        let made = plan(&all, &before, |_, _| true);
        assert!(made.prune.is_empty());
        assert_eq!(made.apply.len(), 1);
        assert_eq!(forget(&made.remember, &all, &[])["a.yaml"], before["a.yaml"]);
    }

    #[test]
    fn the_next_version_of_a_chart_takes_its_release_over() {
        let of = |name: &str, settings: Option<&str>| {
            chart(Path::new(name), settings, "hash")
                .map(|documents| Manifest { hash: "hash".into(), documents: Ok(documents) })
        };
        let settings = "namespace: apps\nvalues: {a: 1}";
        let all =
            BTreeMap::from([("web-1.0.0.tgz".to_owned(), of("/m/web-1.0.0.tgz", Some(settings)).unwrap())]);
        let made = plan(&all, &Applied::new(), |_, _| true);
        assert_eq!(made.apply[0].document.id.to_string(), "Release apps/web");
        let next =
            BTreeMap::from([("web-1.1.0.tgz".to_owned(), of("/m/web-1.1.0.tgz", Some(settings)).unwrap())]);
        assert!(plan(&next, &made.remember, |_, _| true).prune.is_empty(), "it is upgraded");
        // In another namespace it is another release.
        let moved = BTreeMap::from([("web-1.1.0.tgz".to_owned(), of("/m/web-1.1.0.tgz", None).unwrap())]);
        let made = plan(&moved, &made.remember, |_, _| true);
        assert_eq!((made.prune.len(), made.prune[0].namespace.as_str()), (1, "apps"));
        assert!(
            of("/m/web-1.0.0.tgz", Some("x: 1")).unwrap_err().starts_with("its settings: unknown field `x`")
        );
        assert!(of("/m/W_b-1.0.0.tgz", None).is_err());
    }

    #[test]
    fn only_what_is_wanted_is_applied() {
        let all = BTreeMap::from([
            ("a.yaml".to_owned(), file(&[("ConfigMap", "x")])),
            ("b.yaml".to_owned(), file(&[("ConfigMap", "y")])),
        ]);
        let made = plan(&all, &Applied::new(), |file, _| file == "b.yaml");
        assert_eq!(made.apply.len(), 1);
        assert_eq!(made.remember.len(), 2);
    }
}
