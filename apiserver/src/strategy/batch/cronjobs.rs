//! CronJobs.

use super::jobs::job_spec;
use super::*;
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

impl Strategy for CronJobs {
    fn warnings(&self, new: &Object, old: Option<&Object>) -> Vec<String> {
        workloads::warnings(new, old, "spec.jobTemplate.spec.template")
    }

    fn defaults(&self, object: &mut Object) {
        workloads::template_defaults(object, "spec.jobTemplate.spec.template");
        let Some(spec) = object_at(object, "spec") else { return };
        default_str(spec, "concurrencyPolicy", "Allow");
        default(spec, "suspend", false);
        default(spec, "successfulJobsHistoryLimit", 3);
        default(spec, "failedJobsHistoryLimit", 1);
    }

    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        set(object, "status", json!({}));
    }

    fn prepare_update(&self, new: &mut Object, old: &Object, _env: &Env) {
        copy_field(new, old, "status");
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let (spec, path) = (&object["spec"], Path::root("spec"));
        if name(object).len() > MAX_NAME_BYTES {
            let here = Path::root("metadata").field("name");
            errors.invalid(&here, name(object), "must be no more than 52 characters");
        }
        schedule(spec, &path, errors);
        rules::one_of(spec, "concurrencyPolicy", &["Allow", "Forbid", "Replace"], &path, errors);
        for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
            rules::non_negative_at(spec, field, &path, errors);
        }
        let template = path.field("jobTemplate").field("spec");
        if bool_at(spec, "jobTemplate.spec.manualSelector") {
            errors.not_supported(&template.field("manualSelector"), "true", &["nil", "false"]);
        }
        job_spec(at(spec, "jobTemplate.spec"), &template, errors);
    }

    fn has_status(&self) -> bool {
        true
    }

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
        let last = if last.is_null() { "<none>".to_owned() } else { human::age(last, now) };
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

fn schedule(spec: &Value, path: &Path, errors: &mut Errors) {
    let (text, here) = (str_at(spec, "schedule"), path.field("schedule"));
    if text.is_empty() {
        errors.required(&here, "");
    } else if text.contains("TZ") {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.invalid(&here, text, detail);
    } else if let Err(why) = Schedule::parse(text) {
        errors.invalid(&here, text, &why);
    }
    let zone = path.field("timeZone");
    match spec.get("timeZone").and_then(Value::as_str) {
        Some("") => errors.invalid(&zone, "", "timeZone must be nil or non-empty string"),
        Some("Local") => errors.invalid(
            &zone,
            "Local",
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        ),
        Some(name) if cron::zone(name).is_none() => {
            errors.invalid(&zone, name, &format!("unknown time zone {name}"));
        }
        _ => {}
    }
}
