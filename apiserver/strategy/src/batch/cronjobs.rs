//! CronJobs.

use super::jobs::job_spec;
use super::{policies, *};
use crate::Facts;
use coracle_api::cron::{self, Schedule};

pub struct CronJobs;

/// A Job's name is the CronJob's and eleven characters more, within 63.
const MAX_NAME_BYTES: usize = 52;

const COLUMNS: &[Column] = &[
    table::NAME,
    table::string("Schedule", "When jobs start, as cron says it"),
    table::string("Timezone", "Time zone of the schedule"),
    table::boolean("Suspend", "Whether no jobs start now"),
    table::integer("Active", "Jobs that run now"),
    table::string("Last Schedule", "Time since a job last started"),
    table::AGE,
    table::WIDE_CONTAINERS,
    table::WIDE_IMAGES,
    table::WIDE_SELECTOR,
];

impl ResourceFacts for CronJobs {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for CronJobs {
    fn warnings(&self, new: &Object, old: Option<&Object>) -> Vec<String> {
        workloads::named_warnings(new, old, "spec.jobTemplate.spec.template")
    }

    fn defaults(&self, object: &mut Object) {
        workloads::template_defaults(object, "spec.jobTemplate.spec.template");
        let Some(spec) = object_at(object, "spec") else { return };
        default_str(spec, "concurrencyPolicy", "Allow");
        default(spec, "suspend", false);
        default(spec, "successfulJobsHistoryLimit", 3);
        default(spec, "failedJobsHistoryLimit", 1);
        at_mut(spec, "jobTemplate.spec").into_iter().for_each(policies::defaults);
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        set(object, "status", json!({}));
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let (spec, path) = (&object["spec"], Path::root("spec"));
        rules::one_of(spec, "concurrencyPolicy", &["Allow", "Forbid", "Replace"], &path, errors);
        for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
            rules::non_negative_at(spec, field, &path, errors);
        }
        let template = path.field("jobTemplate").field("spec");
        let job = at(spec, "jobTemplate.spec");
        job_spec(job, &template, errors);
        if has(job, "selector") {
            let detail = "`selector` will be auto-generated";
            errors.invalid(&template.field("selector"), at(job, "selector").clone(), detail);
        }
        if bool_at(job, "manualSelector") {
            let supported = &["nil", "false"];
            let here = template.field("manualSelector");
            errors.0.push(FieldError::not_supported(here, &true.into(), supported));
        }
    }

    fn validate_create(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let (errors, path) = (&mut Errors(errors), Path::root("spec"));
        schedule(&object["spec"], false, &path, errors);
        zone(&object["spec"], &path.field("timeZone"), errors);
        if name(object).len() > MAX_NAME_BYTES {
            let here = Path::root("metadata").field("name");
            let detail = format!("must be no more than {MAX_NAME_BYTES} bytes");
            errors.invalid(&here, name(object), &detail);
        }
    }
}

impl UpdateStrategy for CronJobs {
    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "status");
    }

    /// What was accepted before a rule came stays.
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let (errors, path) = (&mut Errors(errors), Path::root("spec"));
        schedule(&new["spec"], str_at(old, "spec.schedule").contains("TZ"), &path, errors);
        if at(new, "spec.timeZone") != at(old, "spec.timeZone") {
            zone(&new["spec"], &path.field("timeZone"), errors);
        }
    }
}

impl TableConvertor for CronJobs {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let spec = &object["spec"];
        let job = at(spec, "jobTemplate.spec");
        let [containers, images] = table::containers_and_images(at(job, "template.spec"));
        let suspend = match spec.get("suspend").and_then(Value::as_bool) {
            Some(true) => "True",
            Some(false) => "False",
            None => "<unset>",
        };
        let last = at(object, "status.lastScheduleTime");
        let last = if last.is_null() { "<none>".to_owned() } else { duration::age(last, now) };
        vec![
            name(object).into(),
            str_at(spec, "schedule").into(),
            table::cell_or_none(str_at(spec, "timeZone")),
            suspend.into(),
            list_at(object, "status.active").len().into(),
            last.into(),
            table::age(object, now),
            containers,
            images,
            table::selector(at(job, "selector")).into(),
        ]
    }
}

crate::usual!(CronJobs: StatusStrategy, DeleteStrategy, TransactionStrategy, SelectableFields, ResetFieldsStrategy);

/// `zoned`: whether the schedule may name a time zone itself, as some of old do.
fn schedule(spec: &Value, zoned: bool, path: &Path, errors: &mut Errors) {
    let (text, here) = (str_at(spec, "schedule"), path.field("schedule"));
    if text.is_empty() {
        return errors.required(&here, "");
    }
    let own_zone = text.starts_with("TZ=") || text.starts_with("CRON_TZ=");
    let times = text.split_once(' ').filter(|_| own_zone).map_or(text, |(_, times)| times);
    if let Err(why) = Schedule::parse(times) {
        errors.invalid(&here, text, &why);
    }
    if !text.contains("TZ") {
        return;
    }
    if !zoned {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.invalid(&here, text, detail);
    } else if has(spec, "timeZone") {
        let detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
        errors.invalid(&here, text, detail);
    }
}

fn zone(spec: &Value, path: &Path, errors: &mut Errors) {
    let Some(zone) = at(spec, "timeZone").as_str() else { return };
    if zone.is_empty() {
        errors.invalid(path, "", "timeZone must be nil or non-empty string");
    } else if zone.eq_ignore_ascii_case("Local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(path, zone, detail);
    } else if cron::zone(zone).is_none() {
        errors.invalid(path, zone, &format!("unknown time zone {zone}"));
    }
}
