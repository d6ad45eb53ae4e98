//! Releases of helm that the manifests directory keeps. Helm believes what Secrets of their namespace say of them and does it
//! with an administrator's rights, so not everybody who may write Secrets there may write those.

/// Label of a Secret of such a release: the archive and settings that it was made of.
pub const HASH: &str = "coracle.local/manifest-hash";
/// What annotations of a Namespace begin with that name such releases in it.
pub const KEPT: &str = "release.coracle.local/";

/// The annotation that names one.
pub fn kept(release: &str) -> String {
    format!("{KEPT}{release}")
}

/// The releases that helm could take a Secret to be of: it finds them by labels, and single revisions by the name.
pub fn taken_for<'a>(
    name: &'a str,
    label: impl Fn(&str) -> Option<&'a str>,
) -> impl Iterator<Item = &'a str> {
    let by_labels = (label("owner") == Some("helm")).then(|| label("name")).flatten();
    let revision = name.strip_prefix("sh.helm.release.v1.").and_then(|rest| rest.rsplit_once(".v"));
    by_labels.into_iter().chain(revision.map(|(release, _)| release))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_of_a_release_by_its_labels_or_its_name() {
        let of = |name: &'static str, labels: &[(&'static str, &'static str)]| {
            let label = |key: &str| labels.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
            taken_for(name, label).collect::<Vec<_>>()
        };
        assert_eq!(of("sh.helm.release.v1.web.v12", &[]), ["web"]);
        assert_eq!(of("sh.helm.release.v1.a.v2.v1", &[]), ["a.v2"]);
        assert_eq!(of("x", &[("owner", "helm"), ("name", "web")]), ["web"]);
        assert_eq!(of("sh.helm.release.v1.a.v1", &[("owner", "helm"), ("name", "b")]), ["b", "a"]);
        assert!(of("web", &[("owner", "me"), ("name", "web")]).is_empty());
    }
}
