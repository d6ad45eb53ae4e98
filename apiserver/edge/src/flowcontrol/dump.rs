//! `/debug/api_priority_and_fairness/...`: what is going on inside, in upstream's tables.

use super::state::FlowControl;
use coracle_requests::RequestInfo;
use std::fmt::Write;

const PRIORITY_LEVELS: &str = "dump_priority_levels";
const QUEUES: &str = "dump_queues";
const REQUESTS: &str = "dump_requests";

impl FlowControl {
    /// The page of that name below `/debug/api_priority_and_fairness/`.
    pub fn dump(&self, page: &str, details: bool) -> Option<String> {
        let rows = match page {
            PRIORITY_LEVELS => self.dump_levels(),
            QUEUES => self.dump_queues(),
            REQUESTS => self.dump_requests(details),
            _ => return None,
        };
        Some(aligned(&rows))
    }

    fn dump_levels(&self) -> Vec<Vec<String>> {
        let mut rows = vec![heads(&[
            "PriorityLevelName",
            "ActiveQueues",
            "IsIdle",
            "IsQuiescing",
            "WaitingRequests",
            "ExecutingRequests",
            "DispatchedRequests",
            "RejectedRequests",
            "TimedoutRequests",
            "CancelledRequests",
        ])];
        for (name, level) in &self.state().levels {
            rows.push(level.with(|set, _, _| {
                let active = set.queues.iter().filter(|q| !q.waiting.is_empty()).count();
                let totals = set.totals;
                vec![
                    name.clone(),
                    active.to_string(),
                    set.is_idle().to_string(),
                    "false".to_owned(),
                    set.waiting.to_string(),
                    set.executing.to_string(),
                    totals.dispatched.to_string(),
                    totals.rejected.to_string(),
                    totals.timed_out.to_string(),
                    totals.cancelled.to_string(),
                ]
            }));
        }
        rows
    }

    fn dump_queues(&self) -> Vec<Vec<String>> {
        let mut rows = vec![heads(&[
            "PriorityLevelName",
            "Index",
            "PendingRequests",
            "ExecutingRequests",
            "SeatsInUse",
            "NextDispatchR",
            "InitialSeatsSum",
            "MaxSeatsSum",
            "TotalWorkSum",
        ])];
        for (name, level) in &self.state().levels {
            level.with(|set, _, _| {
                for (index, queue) in set.queues.iter().enumerate() {
                    rows.push(vec![
                        name.clone(),
                        index.to_string(),
                        queue.waiting.len().to_string(),
                        queue.executing.to_string(),
                        queue.seats_in_use.to_string(),
                        format!("{:.8}ss", queue.next_seat_seconds()),
                        queue.seats_waiting.to_string(),
                        queue.seats_waiting.to_string(),
                        format!("{:.8}ss", f64::from(queue.seats_waiting) * super::queueset::GUESS_SECONDS),
                    ]);
                }
            });
        }
        rows
    }

    /// Waiting requests. Running ones are only counted: keeping each would cost every request.
    fn dump_requests(&self, details: bool) -> Vec<Vec<String>> {
        let mut rows = vec![heads(&[
            "PriorityLevelName",
            "FlowSchemaName",
            "QueueIndex",
            "RequestIndexInQueue",
            "FlowDistingsher",
            "ArriveTime",
            "InitialSeats",
            "FinalSeats",
            "AdditionalLatency",
            "StartTime",
        ])];
        if details {
            let more =
                ["UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource"];
            rows[0].extend(heads(&more));
        }
        for (name, level) in &self.state().levels {
            level.with(|set, _, _| {
                for (index, queue) in set.queues.iter().enumerate() {
                    for (place, request) in queue.waiting.iter().enumerate() {
                        let who = &request.owner;
                        let mut row = vec![
                            name.clone(),
                            who.schema.config.name.clone(),
                            index.to_string(),
                            place.to_string(),
                            who.distinguisher().to_owned(),
                            who.arrived.to_string(),
                            request.seats.to_string(),
                            "0".to_owned(),
                            "0s".to_owned(),
                            "0001-01-01T00:00:00Z".to_owned(),
                        ];
                        if details {
                            row.extend(about(&who.user, &who.info));
                        }
                        rows.push(row);
                    }
                }
            });
        }
        rows
    }
}

fn about(user: &str, info: &RequestInfo) -> [String; 8] {
    let version = coracle_api::catalogue::api_version(&info.group, &info.version);
    let texts = [
        user,
        info.verb,
        &info.path,
        &info.namespace,
        &info.name,
        &version,
        &info.resource,
        &info.subresource,
    ];
    texts.map(str::to_owned)
}

fn heads(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Columns end with a comma and are padded to the widest cell, at least eight characters.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|r| r.get(column)).map(|c| c.len() + 2).max().unwrap_or(0).max(8)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            let last = column + 1 == row.len();
            let written = if last {
                writeln!(text, "{cell}")
            } else {
                write!(text, "{:width$}", format!("{cell},"), width = widths[column])
            };
            // Writing to a String cannot fail.
            let _ = written;
        }
    }
    text
}
