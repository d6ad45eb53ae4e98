//! What an extension point answers.

use std::borrow::Cow;

/// Upstream's `fwk.Status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    Success,
    /// This plugin has nothing to say about this pod: its Filter (or Score) is left out in this cycle.
    Skip,
    /// The pod does not fit now; taking other pods away could help. Reasons are worded as upstream's.
    Unschedulable(Vec<Cow<'static, str>>),
    /// The pod does not fit, and taking other pods away would not help.
    Unresolvable(Vec<Cow<'static, str>>),
    /// The pod waits for something of its own; it is tried again at once when that happens, without back-off.
    Pending(Vec<Cow<'static, str>>),
    /// Something failed that says nothing about the pod; it is tried again.
    Error(String),
}

impl Status {
    pub fn unschedulable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Unschedulable(vec![reason.into()])
    }

    pub fn unresolvable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Unresolvable(vec![reason.into()])
    }

    pub fn is_success(&self) -> bool {
        matches!(self, Self::Success | Self::Skip)
    }

    pub fn reasons(&self) -> &[Cow<'static, str>] {
        match self {
            Self::Unschedulable(reasons) | Self::Unresolvable(reasons) | Self::Pending(reasons) => reasons,
            _ => &[],
        }
    }

    /// The reasons as one text, or what failed.
    pub fn message(&self) -> String {
        match self {
            Self::Error(why) => why.clone(),
            other => other.reasons().join(", "),
        }
    }

    /// Upstream's name of the code, as metrics show it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::Skip => "Skip",
            Self::Unschedulable(_) => "Unschedulable",
            Self::Unresolvable(_) => "UnschedulableAndUnresolvable",
            Self::Pending(_) => "Pending",
            Self::Error(_) => "Error",
        }
    }
}
