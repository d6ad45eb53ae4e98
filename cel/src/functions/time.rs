//! Moments and spans.

use super::{Cost, Function, Outcome, text};
use crate::error::EvalError;
use crate::value::{Value, parse_duration, parse_timestamp};
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

macro_rules! part {
    ($name:literal, $of_time:expr, $of_span:expr) => {
        Function {
            name: $name,
            signatures: &[
                concat!("timestamp.", $name, "(): int"),
                concat!("timestamp.", $name, "(string): int"),
                concat!("duration.", $name, "(): int"),
            ],
            run: |args| part(args, $of_time, $of_span),
            cost: Cost::Flat,
        }
    };
}

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "timestamp",
        signatures: &[
            "timestamp(string): timestamp",
            "timestamp(int): timestamp",
            "timestamp(timestamp): timestamp",
        ],
        run: |args| match &args[0] {
            Value::Timestamp(time) => Ok(Value::Timestamp(*time)),
            Value::Int(seconds) => {
                let time = Timestamp::from_second(*seconds);
                time.map(Value::Timestamp).map_err(|_| EvalError::Message("timestamp overflow".to_owned()))
            }
            other => {
                let shown = text(other)?;
                parse_timestamp(shown).map(Value::Timestamp).ok_or_else(|| {
                    let what = "type conversion error from 'string' to 'google.protobuf.Timestamp'";
                    EvalError::Message(what.to_owned())
                })
            }
        },
        cost: Cost::Flat,
    },
    Function {
        name: "duration",
        signatures: &[
            "duration(string): duration",
            "duration(duration): duration",
            "duration(int): duration",
        ],
        run: |args| match &args[0] {
            Value::Duration(span) => Ok(Value::Duration(*span)),
            Value::Int(nanos) => Ok(Value::Duration(SignedDuration::from_nanos(*nanos))),
            other => {
                let shown = text(other)?;
                let span = parse_duration(shown).map(Value::Duration);
                span.ok_or_else(|| {
                    let what = "type conversion error from 'string' to 'google.protobuf.Duration'";
                    EvalError::Message(what.to_owned())
                })
            }
        },
        cost: Cost::Flat,
    },
    part!("getFullYear", |t| i64::from(t.year()), None),
    part!("getMonth", |t| i64::from(t.month()) - 1, None),
    part!("getDate", |t| i64::from(t.day()), None),
    part!("getDayOfMonth", |t| i64::from(t.day()) - 1, None),
    part!("getDayOfYear", |t| i64::from(t.day_of_year()) - 1, None),
    part!("getDayOfWeek", |t| i64::from(t.weekday().to_sunday_zero_offset()), None),
    part!("getHours", |t| i64::from(t.hour()), Some(|s| s.as_secs() / 3600)),
    part!("getMinutes", |t| i64::from(t.minute()), Some(|s| s.as_secs() / 60)),
    part!("getSeconds", |t| i64::from(t.second()), Some(|s| s.as_secs())),
    part!(
        "getMilliseconds",
        |t| i64::from(t.millisecond()),
        Some(|s| i64::try_from(s.as_millis()).unwrap_or(i64::MAX))
    ),
];

fn part<'a>(
    args: &[Value<'a>],
    of_time: fn(DateTime) -> i64,
    of_span: Option<fn(SignedDuration) -> i64>,
) -> Outcome<'a> {
    match (&args[0], of_span) {
        (Value::Timestamp(time), _) => {
            let zone = args.get(1).map_or(Ok(TimeZone::UTC), |name| zone(text(name)?))?;
            Ok(Value::Int(of_time(zone.to_datetime(*time))))
        }
        (Value::Duration(span), Some(of_span)) => Ok(Value::Int(of_span(*span))),
        _ => Err(EvalError::NoOverload),
    }
}

/// A name of the time zone database, or an offset such as `-02:30`.
fn zone(name: &str) -> Result<TimeZone, EvalError> {
    let unknown = || EvalError::Message(format!("unknown time zone {name}"));
    if let Some((hours, minutes)) = name.split_once(':') {
        let hours: i32 = hours.parse().map_err(|_| unknown())?;
        let minutes: i32 = minutes.parse().map_err(|_| unknown())?;
        let sign = if name.starts_with('-') { -1 } else { 1 };
        let offset = Offset::from_seconds(hours * 3600 + sign * minutes * 60).map_err(|_| unknown())?;
        return Ok(TimeZone::fixed(offset));
    }
    if matches!(name, "" | "UTC") { Ok(TimeZone::UTC) } else { TimeZone::get(name).map_err(|_| unknown()) }
}
