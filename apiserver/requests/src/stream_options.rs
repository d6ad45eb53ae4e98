//! The options of connections (`PodExecOptions` and its like), which are of no published kind: what a query may say, what
//! admission is shown of it, and what OpenAPI tells of it go by this one table.

/// What a field of such options is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionType {
    Flag,
    Text,
    /// A parameter each.
    Texts,
    /// A parameter each, or several with commas between them.
    Ports,
    /// Comes from the path of the request, not from its query.
    Path,
}

/// Fields by their names.
pub type OptionFields = &'static [(&'static str, OptionType)];

const STDIN: (&str, OptionType) = ("stdin", OptionType::Flag);
const STDOUT: (&str, OptionType) = ("stdout", OptionType::Flag);
const STDERR: (&str, OptionType) = ("stderr", OptionType::Flag);
const TTY: (&str, OptionType) = ("tty", OptionType::Flag);
const CONTAINER: (&str, OptionType) = ("container", OptionType::Text);
const PROXIED: OptionFields = &[("path", OptionType::Path)];

/// By kind.
pub const STREAM_OPTIONS: [(&str, OptionFields); 6] = [
    ("PodExecOptions", &[STDIN, STDOUT, STDERR, TTY, CONTAINER, ("command", OptionType::Texts)]),
    ("PodAttachOptions", &[STDIN, STDOUT, STDERR, TTY, CONTAINER]),
    ("PodPortForwardOptions", &[("ports", OptionType::Ports)]),
    ("PodProxyOptions", PROXIED),
    ("ServiceProxyOptions", PROXIED),
    ("NodeProxyOptions", PROXIED),
];

/// `None`: no such options.
pub fn stream_options(kind: &str) -> Option<OptionFields> {
    STREAM_OPTIONS.iter().find(|(name, _)| *name == kind).map(|(_, fields)| *fields)
}

/// Whether any of the options is made of this parameter of a query.
pub fn is_stream_parameter(name: &str) -> bool {
    let mut fields = STREAM_OPTIONS.iter().flat_map(|(_, fields)| *fields);
    fields.any(|(field, of)| *field == name && *of != OptionType::Path)
}
