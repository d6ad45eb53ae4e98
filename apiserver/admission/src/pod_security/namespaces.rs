//! Namespaces: their labels must be right, and who raises the enforced level hears of pods that would not pass.

use super::policy::{Level, Policy, Standard};
use super::rules::{self, Pod};
use super::{PodSecurity, Request};
use coracle_api::{ApiError, Object};
use std::collections::BTreeMap;

/// As many pods as upstream looks at.
const MOST_PODS: usize = 3000;

impl PodSecurity {
    pub(super) fn namespace(
        &self,
        request: &Request,
        new: &Object,
        old: Option<&Object>,
    ) -> Result<(), ApiError> {
        let read =
            |namespace: &Object| Policy::of_labels(&namespace["metadata"]["labels"], self.settings.defaults);
        let (policy, mistakes) = read(new);
        let before = old.map(read);
        let known = before.as_ref().is_some_and(|(_, known)| *known == mistakes);
        if !mistakes.is_empty() && !known {
            return Err(ApiError::invalid("", "Namespace", request.name, &mistakes));
        }
        let Some((before, _)) = before else { return Ok(()) };
        let (is, was) = (policy.enforce, before.enforce);
        let relaxed = is.version == was.version && is.level <= was.level;
        let exempt = self.settings.exempt_namespaces.iter().any(|n| n == request.name);
        if is != was && is.level != Level::Privileged && !relaxed && !exempt {
            self.existing_pods(request, is).into_iter().for_each(|warning| request.warn(warning));
        }
        Ok(())
    }

    fn existing_pods(&self, request: &Request, standard: Standard) -> Vec<String> {
        let pods = request.read.list("pods.", request.name);
        let total = pods.len();
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pod in pods.iter().take(MOST_PODS).filter(|pod| !self.exempts_class(&pod["spec"])) {
            let broken = rules::violations(Pod { metadata: &pod["metadata"], spec: &pod["spec"] }, standard);
            if !broken.is_empty() {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                found.entry(rules::reasons(&broken)).or_default().push(name);
            }
        }
        let mut warnings = Vec::new();
        if total > MOST_PODS {
            warnings.push(format!(
                "new PodSecurity enforce level only checked against the first {MOST_PODS} of {total} existing pods"
            ));
        }
        if !found.is_empty() {
            warnings.push(format!(
                "existing pods in namespace \"{}\" violate the new PodSecurity enforce level \"{standard}\"",
                request.name
            ));
        }
        let mut lines: Vec<String> = found.into_iter().filter_map(|(why, names)| line(names, &why)).collect();
        lines.sort();
        warnings.extend(lines);
        warnings
    }
}

/// The first pod by name stands for all that break the same rules.
fn line(names: Vec<String>, why: &str) -> Option<String> {
    let others = names.len().checked_sub(1)?;
    let first = names.into_iter().min()?;
    Some(match others {
        0 => format!("{first}: {why}"),
        1 => format!("{first} (and 1 other pod): {why}"),
        n => format!("{first} (and {n} other pods): {why}"),
    })
}
