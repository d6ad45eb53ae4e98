//! Groups of the Kubernetes project need an annotation that points at their approval (KEP-1111).

use super::*;

const PROTECTED: [&str; 2] = ["k8s.io", "kubernetes.io"];
const ANNOTATION: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    Missing,
    Invalid,
    Approved,
    Bypassed,
}

impl Approval {
    /// With the words for it; `None` for groups that need no approval.
    pub fn of(definition: &Object) -> Option<(Self, String)> {
        let group = str_at(definition, "spec.group");
        let protected =
            |suffix: &str| group.strip_suffix(suffix).is_some_and(|r| r.is_empty() || r.ends_with('.'));
        PROTECTED.into_iter().any(protected).then(|| Self::judge(text(definition)))
    }

    fn judge(text: &str) -> (Self, String) {
        let missing = format!("protected groups must have approval annotation {ANNOTATION:?}");
        if text.is_empty() {
            (Self::Missing, format!("{missing}, {SEE}"))
        } else if text.starts_with("unapproved") {
            (Self::Bypassed, format!("not approved: {text:?}"))
        } else if text.parse::<::http::Uri>().is_ok_and(|uri| uri.host().is_some() && uri.scheme().is_some())
        {
            (Self::Approved, format!("approved in {text}"))
        } else {
            let how = format!("{missing} with either a URL or a reason starting with \"unapproved\", {SEE}");
            (Self::Invalid, how)
        }
    }
}

fn text(definition: &Object) -> &str {
    at(definition, "metadata.annotations").get(ANNOTATION).and_then(Value::as_str).unwrap_or_default()
}

/// An update that leaves the state as it was is not held to it.
pub fn check(new: &Object, old: Option<&Object>, errors: &mut Errors) {
    let Some((state, why)) = Approval::of(new) else { return };
    if old.and_then(Approval::of).is_some_and(|(before, _)| before == state) {
        return;
    }
    let path = Path::root("metadata").field("annotations").key(ANNOTATION);
    match state {
        Approval::Missing => errors.required(&path, &why),
        Approval::Invalid => errors.invalid(&path, text(new), &why),
        Approval::Approved | Approval::Bypassed => {}
    }
}
