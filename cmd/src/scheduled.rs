//! When the server writes backups by itself, where, and how many of them stay.

use crate::settings::first_of;
use crate::time::Time;
use axum::http::Uri;
use clap::Args;
use coracle_api::cron::Schedule;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Deserialize;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// In the configuration file under `backup`.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScheduleArgs {
    /// When the server writes a backup by itself: a cron schedule in this machine's time zone, such as '0 3 * * *'
    #[arg(long, value_name = "CRON")]
    pub backup_schedule: Option<String>,
    /// The same, so long after the last one [default: none is written]
    #[arg(long, value_name = "DURATION")]
    pub backup_interval: Option<Time>,
    /// Where these backups lie [default: DATA_DIR/backups]
    #[arg(long, value_name = "DIR")]
    pub backup_dir: Option<PathBuf>,
    /// How many of them stay there, and in the bucket [default: 7]
    #[arg(long, value_name = "N")]
    pub backup_keep: Option<usize>,
    /// For how long; the newest stays anyway [default: for ever]
    #[arg(long, value_name = "DURATION")]
    pub backup_keep_for: Option<Time>,
    /// How often what was committed since is archived beside them, so that any revision and time can be restored [default: never]
    #[arg(long, value_name = "DURATION")]
    pub backup_journal_interval: Option<Time>,
    /// Seals them by this key: 32 random bytes in hex or base64, such as openssl rand -hex 32 makes
    #[arg(long, value_name = "FILE")]
    pub backup_key_file: Option<PathBuf>,
    /// URL of an S3-compatible store, to which each of them is copied; without TLS sealed ones alone
    #[arg(long, value_name = "URL")]
    pub backup_s3_endpoint: Option<String>,
    /// The bucket there
    #[arg(long, value_name = "NAME")]
    pub backup_s3_bucket: Option<String>,
    /// What stands before their names there, such as boat-7/
    #[arg(long, value_name = "PREFIX")]
    pub backup_s3_prefix: Option<String>,
    /// The region that requests are signed for [default: us-east-1]
    #[arg(long, value_name = "REGION")]
    pub backup_s3_region: Option<String>,
    /// By whom: a file with aws_access_key_id and aws_secret_access_key, as the tools of S3 keep it
    #[arg(long, value_name = "FILE")]
    pub backup_s3_credentials_file: Option<PathBuf>,
    /// Authorities (PEM) that the store is believed by [default: the machine's own]
    #[arg(long, value_name = "FILE")]
    pub backup_s3_ca_file: Option<PathBuf>,
}

/// Seven, one of each day of a week.
const KEEP: usize = 7;
/// Shorter, and backups would be what the disk is busy with.
const MIN_INTERVAL: Duration = Duration::from_secs(60);
/// A file for each second of a busy server is enough.
const MIN_JOURNAL_INTERVAL: Duration = Duration::from_secs(1);
const REGION: &str = "us-east-1";

/// All of it, checked.
#[derive(Clone)]
pub struct Plan {
    pub when: When,
    pub keeping: Keeping,
    /// How often commits are archived, if they are.
    pub journal_interval: Option<Duration>,
    pub key_file: Option<PathBuf>,
    pub places: Places,
}

/// Where backups are.
#[derive(Clone)]
pub struct Places {
    pub directory: PathBuf,
    pub bucket: Option<Bucket>,
}

#[derive(Clone)]
pub enum When {
    Cron(Schedule, TimeZone),
    Every(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    pub count: usize,
    pub life: Option<Duration>,
}

#[derive(Clone, Debug)]
pub struct Bucket {
    pub endpoint: Uri,
    pub name: String,
    pub prefix: String,
    pub region: String,
    pub credentials_file: PathBuf,
    pub ca_file: Option<PathBuf>,
}

impl When {
    /// The time of the next one. `last` is when the last one was made, if there is one; `since` when the server began to look.
    pub fn next(&self, last: Option<Timestamp>, since: Timestamp) -> Option<Timestamp> {
        match self {
            // One that was missed while the machine was off is made up for.
            Self::Cron(schedule, zone) => schedule.next(last.unwrap_or(since), zone),
            Self::Every(interval) => {
                let interval = jiff::SignedDuration::try_from(*interval).unwrap_or_default();
                last.map_or(Some(since), |last| last.checked_add(interval).ok())
            }
        }
    }
}

/// The machine's own zone, as /etc/localtime tells it.
fn local() -> TimeZone {
    let data = std::fs::read("/etc/localtime").ok();
    data.and_then(|data| TimeZone::tzif("Local", &data).ok()).unwrap_or(TimeZone::UTC)
}

/// Without TLS, and not to this machine itself.
fn is_readable_on_the_way(endpoint: &Uri) -> bool {
    let host = endpoint.host().unwrap_or_default().trim_matches(['[', ']']);
    let own = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
    endpoint.scheme_str() == Some("http") && !own
}

impl ScheduleArgs {
    /// Of each setting this one's, or where it is missing the other's.
    pub fn or(self, other: Self) -> Self {
        first_of!(self, other: backup_schedule, backup_interval, backup_dir, backup_keep, backup_keep_for,
            backup_journal_interval, backup_key_file, backup_s3_endpoint, backup_s3_bucket, backup_s3_prefix, backup_s3_region,
            backup_s3_credentials_file, backup_s3_ca_file)
    }

    pub fn check(&self, data_dir: &Path, mistakes: &mut Vec<String>) {
        self.plan(data_dir, mistakes);
    }

    /// `None` where no backups are asked for, or something is wrong, which goes to `mistakes`.
    pub fn plan(&self, data_dir: &Path, mistakes: &mut Vec<String>) -> Option<Plan> {
        let places = self.places(data_dir, mistakes);
        if let Some(bucket) = places.as_ref().and_then(|places| places.bucket.as_ref())
            && self.backup_key_file.is_none()
            && is_readable_on_the_way(&bucket.endpoint)
        {
            let why = "a backup holds all keys of the cluster, and everybody on the way to http:// could read it: give https://, or a backup-key-file that seals it";
            mistakes.push(format!("backup-s3-endpoint: {why}"));
        }
        let when = match (&self.backup_schedule, self.backup_interval) {
            (None, None) => {
                if self.is_more_than_nothing() {
                    mistakes.push(
                        "backup-schedule: without it, or backup-interval, no backup is written".to_owned(),
                    );
                }
                return None;
            }
            (Some(_), Some(_)) => {
                Err("backup-schedule: there is a backup-interval too; one of both".to_owned())
            }
            (Some(text), None) => cron(text),
            (None, Some(Time(interval))) if interval >= MIN_INTERVAL => Ok(When::Every(interval)),
            (None, Some(_)) => Err("backup-interval: a minute is the least".to_owned()),
        };
        let count = self.backup_keep.unwrap_or(KEEP);
        if count == 0 {
            mistakes.push("backup-keep: one is the least".to_owned());
        }
        let when = when.map_err(|mistake| mistakes.push(mistake)).ok()?;
        let keeping = Keeping { count, life: self.backup_keep_for.map(|time| time.0) };
        let journal_interval = self.backup_journal_interval.map(|time| time.0);
        if journal_interval.is_some_and(|interval| interval < MIN_JOURNAL_INTERVAL) {
            mistakes.push("backup-journal-interval: a second is the least".to_owned());
        }
        Some(Plan {
            when,
            keeping,
            journal_interval,
            key_file: self.backup_key_file.clone(),
            places: places?,
        })
    }

    fn is_more_than_nothing(&self) -> bool {
        let files = [
            &self.backup_dir,
            &self.backup_key_file,
            &self.backup_s3_credentials_file,
            &self.backup_s3_ca_file,
        ];
        let texts = [
            &self.backup_s3_endpoint,
            &self.backup_s3_bucket,
            &self.backup_s3_prefix,
            &self.backup_s3_region,
        ];
        files.iter().any(|file| file.is_some())
            || texts.iter().any(|text| text.is_some())
            || self.backup_keep.is_some()
            || self.backup_keep_for.is_some()
            || self.backup_journal_interval.is_some()
    }

    /// Where backups are, whether or not any are asked for.
    pub fn places(&self, data_dir: &Path, mistakes: &mut Vec<String>) -> Option<Places> {
        let directory = self.backup_dir.clone().unwrap_or_else(|| data_dir.join("backups"));
        let given = [
            ("backup-s3-endpoint", self.backup_s3_endpoint.is_some()),
            ("backup-s3-bucket", self.backup_s3_bucket.is_some()),
            ("backup-s3-credentials-file", self.backup_s3_credentials_file.is_some()),
        ];
        let (endpoint, name, credentials) =
            match (&self.backup_s3_endpoint, &self.backup_s3_bucket, &self.backup_s3_credentials_file) {
                (Some(endpoint), Some(name), Some(credentials)) => (endpoint, name, credentials),
                (None, None, None) => return Some(Places { directory, bucket: None }),
                _ => {
                    let missing = given.iter().filter(|(_, given)| !given).map(|(flag, _)| *flag);
                    let missing = missing.collect::<Vec<_>>().join(", ");
                    mistakes.push(format!("{missing}: a bucket needs an endpoint, a name and credentials"));
                    return None;
                }
            };
        let endpoint: Option<Uri> = endpoint.trim_end_matches('/').parse().ok();
        let is_url = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
        let Some(endpoint) = endpoint.filter(is_url) else {
            mistakes.push("backup-s3-endpoint: it is no URL such as https://s3.example.com".to_owned());
            return None;
        };
        let bucket = Bucket {
            endpoint,
            name: name.clone(),
            prefix: self.backup_s3_prefix.clone().unwrap_or_default(),
            region: self.backup_s3_region.clone().unwrap_or_else(|| REGION.to_owned()),
            credentials_file: credentials.clone(),
            ca_file: self.backup_s3_ca_file.clone(),
        };
        Some(Places { directory, bucket: Some(bucket) })
    }
}

fn cron(text: &str) -> Result<When, String> {
    let schedule = Schedule::parse(text).map_err(|why| format!("backup-schedule: {text:?}: {why}"))?;
    let zone = local();
    if schedule.next(Timestamp::now(), &zone).is_none() {
        return Err(format!("backup-schedule: {text:?}: there is no such time"));
    }
    Ok(When::Cron(schedule, zone))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(args: &ScheduleArgs) -> String {
        let mut mistakes = Vec::new();
        args.check(Path::new("/d"), &mut mistakes);
        mistakes.join("\n")
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let text = |text: &str| Some(text.to_owned());
        let good = ScheduleArgs { backup_schedule: text("0 3 * * *"), ..ScheduleArgs::default() };
        assert_eq!((mistakes(&ScheduleArgs::default()), mistakes(&good)), (String::new(), String::new()));
        let both = ScheduleArgs { backup_interval: Some(Time(Duration::from_secs(60))), ..good.clone() };
        assert!(mistakes(&both).contains("one of both"));
        for bad in ["soon", "0 0 31 2 *", "* * *"] {
            let args = ScheduleArgs { backup_schedule: text(bad), ..ScheduleArgs::default() };
            assert!(mistakes(&args).starts_with("backup-schedule: "), "{bad}");
        }
        let alone = ScheduleArgs { backup_keep: Some(0), ..ScheduleArgs::default() };
        assert!(mistakes(&alone).contains("no backup is written"));
        let short = Some(Time(Duration::from_millis(999)));
        let short = ScheduleArgs { backup_journal_interval: short, ..good.clone() };
        assert!(mistakes(&short).starts_with("backup-journal-interval: a second"));
        let half = ScheduleArgs { backup_s3_bucket: text("b"), backup_keep: Some(0), ..good.clone() };
        let said = mistakes(&half);
        assert!(said.contains("backup-s3-endpoint, backup-s3-credentials-file: a bucket needs"), "{said}");
        assert!(said.contains("backup-keep: one is the least"), "{said}");
        let whole = ScheduleArgs {
            backup_s3_bucket: text("b"),
            backup_s3_endpoint: text("s3.example.com"),
            backup_s3_credentials_file: Some("c".into()),
            ..good
        };
        assert!(mistakes(&whole).contains("it is no URL"));
        let whole = ScheduleArgs { backup_s3_endpoint: text("https://s3.example.com/"), ..whole };
        assert_eq!(mistakes(&whole), "");
        let to = |endpoint: &str| ScheduleArgs { backup_s3_endpoint: text(endpoint), ..whole.clone() };
        for open in ["http://s3.example.com", "http://192.0.2.1:9000", "http://localhost.example.com"] {
            assert!(mistakes(&to(open)).contains("backup-key-file that seals it"), "{open}");
            let sealed = ScheduleArgs { backup_key_file: Some("k".into()), ..to(open) };
            assert_eq!(mistakes(&sealed), "");
        }
        for own in ["http://127.0.0.1:9000", "http://[::1]:9000", "http://localhost:9000"] {
            assert_eq!(mistakes(&to(own)), "", "{own}");
        }
    }

    #[test]
    fn what_was_missed_is_made_up_for() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let cron = When::Cron(Schedule::parse("0 3 * * *").expect("a schedule"), TimeZone::UTC);
        let start = at("2026-05-05T10:00:00Z");
        assert_eq!(cron.next(None, start), Some(at("2026-05-06T03:00:00Z")));
        let last = at("2026-05-03T03:00:00Z");
        assert_eq!(cron.next(Some(last), start), Some(at("2026-05-04T03:00:00Z")), "that is over: now");
        let every = When::Every(Duration::from_secs(3600));
        assert_eq!(
            (every.next(None, start), every.next(Some(last), start)),
            (Some(start), Some(at("2026-05-03T04:00:00Z")))
        );
    }
}
