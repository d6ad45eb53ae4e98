//! Which subresources the generic path serves, and how each looks at its object.

use super::commit::Written;
use super::metadata::of;
use super::ownership::Owners;
use super::update::{How, Part};
use super::{Scope, WriteOptions};
use coracle_api::{ApiError, FieldError, Object};
use serde_json::Value;

/// The subresources that are not streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sub {
    Status,
    /// The conditions of a certificate request.
    Approval,
    Scale,
    /// `spec.finalizers` of a namespace.
    Finalize,
    Binding,
    Eviction,
    Token,
    EphemeralContainers,
    /// CPU and memory of a pod that runs.
    Resize,
}

impl Sub {
    pub fn find(name: &str) -> Option<Self> {
        Some(match name {
            "status" => Self::Status,
            "approval" => Self::Approval,
            "scale" => Self::Scale,
            "finalize" => Self::Finalize,
            "binding" => Self::Binding,
            "eviction" => Self::Eviction,
            "token" => Self::Token,
            "ephemeralcontainers" => Self::EphemeralContainers,
            "resize" => Self::Resize,
            _ => return None,
        })
    }

    /// Whether its body and answer are the object itself, seen in part.
    pub fn shows_object(self) -> bool {
        matches!(
            self,
            Self::Status | Self::Approval | Self::Finalize | Self::EphemeralContainers | Self::Resize
        )
    }

    /// The update rules for what it changes.
    pub fn part(self) -> Part {
        match self {
            Self::Status => Part::Status,
            Self::Approval => Part::Approval,
            _ => Part::Internal,
        }
    }
}

impl Scope<'_> {
    /// Updates through a subresource that shows the object: of what `transform` returns, only the subresource's own
    /// part is taken.
    pub async fn update_sub<F>(
        &self,
        sub: Sub,
        options: &WriteOptions,
        transform: F,
    ) -> Result<Written, ApiError>
    where
        F: FnMut(&Object) -> Result<Object, ApiError> + Send,
    {
        self.update_sub_as(sub, sub.part().owners(self.subresource), options, transform).await
    }

    pub(super) async fn update_sub_as<F>(
        &self,
        sub: Sub,
        owners: Owners,
        options: &WriteOptions,
        mut transform: F,
    ) -> Result<Written, ApiError>
    where
        F: FnMut(&Object) -> Result<Object, ApiError> + Send,
    {
        let narrow = |current: Option<&Object>| {
            let Some(current) = current else { return Err(self.not_found(self.name)) };
            let new = transform(current)?;
            let mut kept = match sub {
                Sub::Finalize => with_spec_field(current, &new, "finalizers"),
                Sub::EphemeralContainers => {
                    self.check_ephemeral(&new, current)?;
                    with_spec_field(current, &new, "ephemeralContainers")
                }
                Sub::Resize => self.resized(&new, current)?,
                _ => return Ok(new),
            };
            carry_over(&mut kept, &new);
            Ok(kept)
        };
        let how = How { part: sub.part(), owners, creates: false };
        self.update_as(how, options, narrow).await.map(|(object, _)| object)
    }

    /// Ephemeral containers can be added, never changed or removed.
    fn check_ephemeral(&self, new: &Object, old: &Object) -> Result<(), ApiError> {
        let list =
            |object: &Object| object["spec"]["ephemeralContainers"].as_array().cloned().unwrap_or_default();
        let (new, mut errors) = (list(new), Vec::new());
        for known in list(old) {
            let name = known["name"].as_str().unwrap_or_default();
            let why = match new.iter().find(|c| c["name"] == known["name"]) {
                Some(same) if *same == known => continue,
                Some(changed) => {
                    let lines = coracle_strategy::changes(changed, &known, "spec.ephemeralContainers");
                    format!("existing ephemeral containers \"{name}\" may not be changed\n{lines}")
                }
                None => format!("existing ephemeral containers \"{name}\" may not be removed\n"),
            };
            errors.push(FieldError::forbidden("spec.ephemeralContainers", &why));
        }
        if !errors.is_empty() {
            return Err(self.invalid(&errors));
        }
        Ok(())
    }
}

/// `old` with one field of the spec of `new`.
fn with_spec_field(old: &Object, new: &Object, field: &str) -> Object {
    let mut object = old.clone();
    match new["spec"].get(field) {
        Some(value) => object["spec"][field] = value.clone(),
        None => {
            if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
                spec.remove(field);
            }
        }
    }
    object
}

/// Takes over the preconditions and the owners of `new`.
fn carry_over(object: &mut Object, new: &Object) {
    for name in ["resourceVersion", "uid"] {
        let sent = new["metadata"].get(name).cloned().unwrap_or_else(|| "".into());
        of(object).insert(name.into(), sent);
    }
    match new["metadata"].get("managedFields") {
        Some(list) => of(object).insert("managedFields".into(), list.clone()),
        None => of(object).remove("managedFields"),
    };
}
