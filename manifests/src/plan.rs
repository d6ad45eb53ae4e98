//! What is to be done, by what the files say and what was applied: knows neither disk nor cluster.

use crate::documents::{self, Document, Id};
use crate::files::{Content, File, Found};
use crate::memory::Applied;
use std::collections::BTreeMap;

/// What one file holds.
#[derive(Debug, PartialEq)]
pub struct Manifest {
    pub hash: String,
    /// Or what is wrong with it.
    pub documents: Result<Vec<Document>, Wrong>,
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
        Content::Refused(why) => Err(Wrong::Refused(why.clone())),
    };
    found
        .files
        .iter()
        .map(|(path, file)| (path.clone(), Manifest { hash: file.hash.clone(), documents: of(file) }))
        .collect()
}

/// Namespaces first, then definitions, who may do what, and the rest: what others need is there before they are.
fn rank(id: &Id) -> u8 {
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

/// Whether some file holds it, or did before it broke.
fn is_kept(manifests: &BTreeMap<String, Manifest>, applied: &Applied, id: &Id) -> bool {
    manifests.iter().any(|(file, manifest)| match &manifest.documents {
        Ok(documents) => documents.iter().any(|document| document.id.is_same(id)),
        Err(_) => applied.get(file).is_some_and(|ids| ids.iter().any(|kept| kept.is_same(id))),
    })
}

/// What is remembered once these have gone, and those that stand in other files.
pub fn forget(remembered: &Applied, manifests: &BTreeMap<String, Manifest>, gone: &[Id]) -> Applied {
    let still = |file: &String, id: &Id| match manifests.get(file).map(|manifest| &manifest.documents) {
        Some(Ok(documents)) if documents.iter().any(|document| document.id.is_same(id)) => true,
        Some(Err(_)) => true,
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
        let document =
            |(kind, name): &(&str, &str)| Document { id: id(kind, name), object: serde_json::Value::Null };
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
        let after = forget(&made.remember, &all, &made.prune);
        assert_eq!(after, Applied::from([("b.yaml".to_owned(), vec![id("ConfigMap", "y")])]));
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
