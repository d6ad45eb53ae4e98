//! The parameters of requests, with what they are for. OpenAPI v2 writes those that many requests share once and refers to
//! them by name and a hash of upstream's, which is a name like any other.

use serde_json::{Value, json};

/// A parameter that is no body.
#[derive(Debug, PartialEq, Eq)]
pub struct Parameter {
    pub name: &'static str,
    /// The end of the name that version 2 shares it under; empty for those that stand with every request.
    hash: &'static str,
    /// Its JSON type.
    kind: &'static str,
    description: &'static str,
    /// In the path, so that it must be given; otherwise in the query.
    in_path: bool,
}

const TEXT: &str = "string";
const NUMBER: &str = "integer";
const FLAG: &str = "boolean";

const fn query(
    name: &'static str,
    hash: &'static str,
    kind: &'static str,
    description: &'static str,
) -> Parameter {
    Parameter { name, hash, kind, description, in_path: false }
}

const fn path(name: &'static str, hash: &'static str, description: &'static str) -> Parameter {
    Parameter { name, hash, kind: TEXT, description, in_path: true }
}

impl Parameter {
    /// As version 2 says it beside a request.
    pub fn v2(&self) -> Value {
        match self.hash {
            "" => self.v2_whole(),
            _ => json!({ "$ref": format!("#/parameters/{}", self.key()) }),
        }
    }

    /// Under which name version 2 shares it.
    pub fn key(&self) -> String {
        format!("{}-{}", self.name, self.hash)
    }

    pub fn v2_whole(&self) -> Value {
        let mut whole = self.head();
        whole["type"] = self.kind.into();
        whole["uniqueItems"] = true.into();
        whole
    }

    pub fn v3(&self) -> Value {
        let mut whole = self.head();
        whole["schema"] = json!({ "type": self.kind, "uniqueItems": true });
        whole
    }

    fn head(&self) -> Value {
        let place = if self.in_path { "path" } else { "query" };
        let mut head = json!({ "name": self.name, "in": place, "description": self.description });
        if self.in_path {
            head["required"] = true.into();
        }
        head
    }
}

/// The keys of the two bodies that are shared.
pub const DELETE_OPTIONS_BODY: &str = "body-2Y1dVQaQ";
pub const PATCH_BODY: &str = "body-78PwaGsr";

pub const NAMESPACE: Parameter = path("namespace", "vgWSWtn3", "The namespace that the object is in.");
pub const REST_OF_PATH: Parameter = path("path", "z6Ciiujn", "What is asked of the target of the proxy.");

pub const PRETTY: Parameter = query(
    "pretty",
    "tJGM1-ng",
    TEXT,
    "With `true` the answer is indented. Without it, it is for browsers, curl and wget alone.",
);
pub const DRY_RUN: Parameter = query(
    "dryRun",
    "",
    TEXT,
    "With `All`, the only value there is, everything is checked and answered as usual, and nothing is stored.",
);
pub const FIELD_MANAGER: Parameter = query(
    "fieldManager",
    "Qy4HdaTW",
    TEXT,
    "Who is to own the fields that change: up to 128 printable characters. Without it, the beginning of the user agent.",
);
pub const PATCH_FIELD_MANAGER: Parameter = query(
    "fieldManager",
    "7c6nTn1T",
    TEXT,
    "Who is to own the fields that change: up to 128 printable characters. An apply patch needs it; for other patches the \
     beginning of the user agent stands in for it.",
);
pub const FIELD_VALIDATION: Parameter = query(
    "fieldValidation",
    "",
    TEXT,
    "What becomes of fields that are unknown or given twice: `Strict` refuses the request and names them, `Warn`, which is \
     the default, drops them and answers with warnings, `Ignore` drops them silently.",
);
pub const FORCE: Parameter = query(
    "force",
    "tOGGb0Yi",
    FLAG,
    "Of an apply patch: take fields over that others own, instead of failing with a conflict.",
);
pub const GRACE_PERIOD: Parameter = query(
    "gracePeriodSeconds",
    "-K5HaBOS",
    NUMBER,
    "Seconds that the object is given to end; 0 deletes it at once. Without it, the kind decides.",
);
pub const IGNORE_STORE_READ_ERROR: Parameter = query(
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "QbNkfIqj",
    FLAG,
    "Deletes an object that cannot be read from the store any more, without regard to finalizers and preconditions. What it \
     stood for may be left behind.",
);
pub const ORPHAN_DEPENDENTS: Parameter = query(
    "orphanDependents",
    "uRB25kX5",
    FLAG,
    "Superseded by `propagationPolicy`: whether the objects that belong to this one stay.",
);
pub const PROPAGATION_POLICY: Parameter = query(
    "propagationPolicy",
    "6jk3prlO",
    TEXT,
    "What becomes of the objects that belong to this one: `Orphan` lets them stay, `Background` deletes them afterwards, \
     `Foreground` before.",
);
pub const ALLOW_WATCH_BOOKMARKS: Parameter = query(
    "allowWatchBookmarks",
    "HC2hJt-J",
    FLAG,
    "Of a watch: send events of the type BOOKMARK too, which say how far the watch has come.",
);
pub const CONTINUE: Parameter = query(
    "continue",
    "QfD61s0i",
    TEXT,
    "Where the last part of a list that came with a `limit` ended, as its metadata say. All other parameters must be the \
     same. After some minutes it is void, which is answered with 410.",
);
pub const FIELD_SELECTOR: Parameter = query(
    "fieldSelector",
    "xIcQKXFG",
    TEXT,
    "Fields that narrow the list of returned objects, such as `metadata.name=a`.",
);
pub const LABEL_SELECTOR: Parameter = query(
    "labelSelector",
    "5Zw57w4C",
    TEXT,
    "Labels that narrow the list of returned objects, such as `a=b,c in (d,e),!f`.",
);
pub const LIMIT: Parameter = query(
    "limit",
    "1NfNmdNH",
    NUMBER,
    "At most so many objects at a time. If there are more, the list's metadata have the value of `continue` that leads on.",
);
pub const RESOURCE_VERSION: Parameter = query(
    "resourceVersion",
    "5WAnf1kx",
    TEXT,
    "The state to answer from: without it the newest, with 0 any, otherwise one not older than this. A watch begins after it.",
);
pub const RESOURCE_VERSION_MATCH: Parameter = query(
    "resourceVersionMatch",
    "t8XhRHeC",
    TEXT,
    "How a list takes `resourceVersion`: `Exact`, or `NotOlderThan`.",
);
pub const SEND_INITIAL_EVENTS: Parameter = query(
    "sendInitialEvents",
    "rLXlEK_k",
    FLAG,
    "Of a watch: begin with the objects that are there, then a BOOKMARK with the annotation `k8s.io/initial-events-end`. \
     Needs `resourceVersionMatch=NotOlderThan`.",
);
pub const SHARD_SELECTOR: Parameter = query(
    "shardSelector",
    "Kgyki_3_",
    TEXT,
    "Only a share of the objects, by a hash of one of their fields. Sharded lists are off: all objects are answered, and the \
     list's metadata have no `shardInfo`.",
);
pub const TIMEOUT: Parameter =
    query("timeoutSeconds", "yvYezaOC", NUMBER, "Seconds after which a list or a watch ends.");
pub const WATCH: Parameter = query(
    "watch",
    "XNNPZGbK",
    FLAG,
    "Watch for changes to the described resources: what changes from `resourceVersion` on is sent as a stream of events, \
     instead of a list.",
);

pub const LOG_CONTAINER: Parameter = query(
    "container",
    "1GeXxFDC",
    TEXT,
    "The container whose log is wanted; may be left out where there is one.",
);
pub const FOLLOW: Parameter = query("follow", "9OIXh_2R", FLAG, "Go on with what is written from now on.");
pub const INSECURE: Parameter = query(
    "insecureSkipTLSVerifyBackend",
    "gM00jVbe",
    FLAG,
    "Do not check the certificate of the kubelet. The log may then come from somebody else.",
);
pub const LIMIT_BYTES: Parameter =
    query("limitBytes", "zwd1RXuc", NUMBER, "End after so many bytes, within a line if need be.");
pub const PREVIOUS: Parameter =
    query("previous", "1jxDPu3y", FLAG, "The log of the container that ran before the present one.");
pub const SINCE: Parameter =
    query("sinceSeconds", "vE2NLdnP", NUMBER, "Only what is not older than so many seconds.");
pub const STREAM: Parameter = query(
    "stream",
    "l-48cgXv",
    TEXT,
    "`Stdout`, `Stderr`, or `All`, the default; `tailLines` goes with `All` alone.",
);
pub const TAIL_LINES: Parameter =
    query("tailLines", "9xQLWHMV", NUMBER, "Only so many lines from the end of the log.");
pub const TIMESTAMPS: Parameter =
    query("timestamps", "c17fW1w_", FLAG, "Begin each line with the time at which it was written.");

pub const COMMAND: Parameter =
    query("command", "Py3eQybp", TEXT, "The command with its arguments, each on its own; no shell reads it.");
pub const EXEC_CONTAINER: Parameter = query(
    "container",
    "i5dOmRiM",
    TEXT,
    "The container to run the command in; may be left out where there is one.",
);
pub const EXEC_STDERR: Parameter =
    query("stderr", "W_1TNlWc", FLAG, "Send what the command writes as errors.");
pub const EXEC_STDIN: Parameter = query("stdin", "PSzNhyUC", FLAG, "Pass input on to the command.");
pub const EXEC_STDOUT: Parameter = query("stdout", "-EZLRwV1", FLAG, "Send what the command writes.");
pub const EXEC_TTY: Parameter = query("tty", "s0flW37O", FLAG, "Give the command a terminal.");

pub const ATTACH_CONTAINER: Parameter =
    query("container", "_Q-EJ3nR", TEXT, "The container to attach to; may be left out where there is one.");
pub const ATTACH_STDERR: Parameter =
    query("stderr", "26jJhFUR", FLAG, "Send what the container writes as errors.");
pub const ATTACH_STDIN: Parameter = query("stdin", "sEFnN3IS", FLAG, "Pass input on to the container.");
pub const ATTACH_STDOUT: Parameter = query("stdout", "005YMKE6", FLAG, "Send what the container writes.");
pub const ATTACH_TTY: Parameter =
    query("tty", "g7MlET_l", FLAG, "The container has a terminal, and the connection is to it.");

pub const PORTS: Parameter =
    query("ports", "91KROJmm", NUMBER, "The ports to forward; WebSockets need them.");
pub const NODE_PATH: Parameter = query("path", "rFDtV0x9", TEXT, "The path that is asked of the node.");
pub const POD_PATH: Parameter = query("path", "oPbzgLUj", TEXT, "The path that is asked of the pod.");
pub const SERVICE_PATH: Parameter = query("path", "QCf0eosM", TEXT, "The path that is asked of the Service.");

/// All that version 2 shares beside the bodies.
pub const SHARED: [&Parameter; 45] = [
    &ALLOW_WATCH_BOOKMARKS,
    &COMMAND,
    &LOG_CONTAINER,
    &ATTACH_CONTAINER,
    &EXEC_CONTAINER,
    &CONTINUE,
    &PATCH_FIELD_MANAGER,
    &FIELD_MANAGER,
    &FIELD_SELECTOR,
    &FOLLOW,
    &FORCE,
    &GRACE_PERIOD,
    &IGNORE_STORE_READ_ERROR,
    &INSECURE,
    &LABEL_SELECTOR,
    &LIMIT,
    &LIMIT_BYTES,
    &NAMESPACE,
    &ORPHAN_DEPENDENTS,
    &SERVICE_PATH,
    &POD_PATH,
    &NODE_PATH,
    &REST_OF_PATH,
    &PORTS,
    &PRETTY,
    &PREVIOUS,
    &PROPAGATION_POLICY,
    &RESOURCE_VERSION,
    &RESOURCE_VERSION_MATCH,
    &SEND_INITIAL_EVENTS,
    &SHARD_SELECTOR,
    &SINCE,
    &ATTACH_STDERR,
    &EXEC_STDERR,
    &EXEC_STDIN,
    &ATTACH_STDIN,
    &EXEC_STDOUT,
    &ATTACH_STDOUT,
    &STREAM,
    &TAIL_LINES,
    &TIMEOUT,
    &TIMESTAMPS,
    &ATTACH_TTY,
    &EXEC_TTY,
    &WATCH,
];
