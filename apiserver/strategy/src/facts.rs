//! What the generic path has to know of a resource beside its rules.

use coracle_api::Resource;

const NAME: &str = "metadata.name";
const NAMESPACE: &str = "metadata.namespace";

/// What upstream configures the storage of a resource with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// DELETE answers with the object that is gone instead of a Status (upstream's `ReturnDeletedObject`).
    pub returns_deleted: bool,
    /// An update may leave out the version that it is based on (upstream's `AllowUnconditionalUpdate`).
    pub unconditional_update: bool,
}

/// How a kind words its refusal of a field in a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Kinds without selectable fields of their own.
    Plain,
    Core,
    Job,
    /// With apiVersion and kind.
    Versioned,
}

/// Which fields of a kind a field selector may name, as upstream's conversions of field labels say.
///
/// See <https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/>.
#[derive(Clone, Copy, Debug)]
pub struct FieldLabels {
    /// Beside the object's name, and its namespace if it has one.
    pub names: &'static [&'static str],
    /// Old names of fields, and what they are called now.
    pub renamed: &'static [(&'static str, &'static str)],
    pub refusal: Refusal,
}

impl FieldLabels {
    pub const PLAIN: Self = Self { names: &[], renamed: &[], refusal: Refusal::Plain };
    pub const CORE: Self = Self { refusal: Refusal::Core, ..Self::PLAIN };
    pub const VERSIONED: Self = Self { refusal: Refusal::Versioned, ..Self::PLAIN };

    /// The name under which objects of `resource` are indexed, for a field of a selector.
    ///
    /// # Errors
    /// Upstream's words for a field that this kind cannot be selected by. `indexed` are the names that the resource's
    /// strategy knows: what a kind without labels of its own indexes is selectable too.
    pub fn canonical<'a>(
        &self,
        resource: &Resource,
        indexed: &[&'static str],
        field: &'a str,
    ) -> Result<&'a str, String> {
        let plain = self.refusal == Refusal::Plain;
        if field == NAME || (field == NAMESPACE && (resource.namespaced || plain)) {
            return Ok(field);
        }
        if let Some((_, now)) = self.renamed.iter().find(|(old, _)| *old == field) {
            return Ok(now);
        }
        if self.names.contains(&field) || (plain && indexed.contains(&field)) {
            return Ok(field);
        }
        Err(match self.refusal {
            Refusal::Plain if indexed.is_empty() => {
                format!("{field:?} is not a known field selector: only {NAME:?}, {NAMESPACE:?}")
            }
            Refusal::Job => format!("field label {field:?} not supported for batchv1.Job"),
            Refusal::Versioned => {
                let (version, kind) = (resource.api_version(), &resource.kind);
                format!("field label not supported for {version}, Kind={kind}: {field}")
            }
            Refusal::Core | Refusal::Plain => format!("field label not supported: {field}"),
        })
    }
}
