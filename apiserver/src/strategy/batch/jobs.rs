//! Jobs.

use super::{policies, *};

pub struct Jobs;

/// The label by which a Job finds its pods.
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

const COLUMNS: &[Column] = &[
    table::NAME,
    table::string("Status", "State of the job in one word"),
    table::string("Completions", "Pods that succeeded, of those that should"),
    table::string("Duration", "Time from start to completion"),
    table::AGE,
    table::WIDE_CONTAINERS,
    table::WIDE_IMAGES,
    table::WIDE_SELECTOR,
];

impl Strategy for Jobs {
    fn warnings(&self, new: &Object, old: Option<&Object>) -> Vec<String> {
        workloads::warnings(new, old, workloads::TEMPLATE)
    }

    fn defaults(&self, object: &mut Object) {
        workloads::template_defaults(object, workloads::TEMPLATE);
        labels_of_template(object);
        let Some(spec) = object_at(object, "spec") else { return };
        if !has(spec, "completions") && !has(spec, "parallelism") {
            set(spec, "completions", 1);
        }
        default(spec, "parallelism", 1);
        default(
            spec,
            "backoffLimit",
            if has(spec, "backoffLimitPerIndex") { i64::from(i32::MAX) } else { 6 },
        );
        default_str(spec, "completionMode", "NonIndexed");
        default(spec, "suspend", false);
        let replacement = if has(spec, "podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
        default_str(spec, "podReplacementPolicy", replacement);
    }

    /// A Job selects its own pods by its uid, unless the client selects them by hand.
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        set(object, "status", json!({}));
        if !bool_at(object, "spec.manualSelector") {
            generate_selector(object);
            labels_of_template(object);
        }
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec");
        selector(object, &path, errors);
        job_spec(&object["spec"], &path, errors);
    }

    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let elastic = str_at(new, "spec.completionMode") == "Indexed"
            && at(new, "spec.completions") == at(new, "spec.parallelism");
        if str_at(new, "spec.completionMode") != "Indexed" {
            rules::immutable(new, old, &["spec.completions"], errors);
        } else if !elastic && at(new, "spec.completions") != at(old, "spec.completions") {
            let here = Path::root("spec").field("completions");
            let value = at(new, "spec.completions").clone();
            errors.invalid(&here, value, "can only be modified in tandem with spec.parallelism");
        }
        template(new, old, errors);
        let fields = [
            "spec.selector",
            "spec.completionMode",
            "spec.podFailurePolicy",
            "spec.backoffLimitPerIndex",
            "spec.successPolicy",
            "spec.managedBy",
        ];
        rules::immutable(new, old, &fields, errors);
    }

    fn has_status(&self) -> bool {
        true
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let [containers, images] = workloads::wide_cells(object);
        vec![
            name(object).into(),
            status(object).into(),
            completions(object).into(),
            duration(object, now).into(),
            table::age(object, now),
            containers,
            images,
            table::selector(at(object, "spec.selector")).into(),
        ]
    }

    fn fields(&self, object: &Object) -> Vec<(&'static str, String)> {
        vec![("status.successful", workloads::count(object, "status.succeeded").to_string())]
    }
}

/// Where the pods of a Job that has not begun may run is still open (KEP-2926).
fn template(new: &Object, old: &Object, errors: &mut Errors) {
    let (path, before) = (Path::root("spec").field("template"), at(old, "spec.template"));
    let mut leveled = at(new, "spec.template").clone();
    if bool_at(old, "spec.suspend") && !has(old, "status.startTime") {
        let mut level = |holder: &str, fields: &[&str]| {
            let none = fields.iter().all(|field| !has(at(before, holder), field));
            let place = if none { at_mut(&mut leveled, holder) } else { object_at(&mut leveled, holder) };
            let Some(place) = place else { return };
            fields.iter().for_each(|field| copy_field(place, at(before, holder), field));
        };
        level("metadata", &["annotations", "labels"]);
        level("spec", &["nodeSelector", "tolerations", "schedulingGates"]);
        level("spec.affinity", &["nodeAffinity"]);
        if !has(before, "spec.affinity") && at(&leveled, "spec.affinity") == &json!({}) {
            remove(&mut leveled, "spec.affinity");
        }
    }
    if leveled != *before {
        errors.invalid(&path, at(new, "spec.template").clone(), "field is immutable");
    }
}

/// A Job without labels has those of its template.
fn labels_of_template(job: &mut Object) {
    let labels = at(job, "spec.template.metadata.labels").clone();
    let own = entries_at(job, "metadata.labels").next().is_some();
    let given = labels.as_object().is_some_and(|l| !l.is_empty());
    if let Some(metadata) = object_at(job, "metadata").filter(|_| given && !own) {
        set(metadata, "labels", labels);
    }
}

fn generate_selector(job: &mut Object) {
    let (uid, name) = (str_at(job, "metadata.uid").to_owned(), name(job).to_owned());
    let Some(labels) = object_at(job, "spec.template.metadata.labels") else { return };
    for (key, value) in [
        ("controller-uid", &uid),
        (CONTROLLER_UID, &uid),
        ("job-name", &name),
        ("batch.kubernetes.io/job-name", &name),
    ] {
        set(labels, key, value.as_str());
    }
    if let Some(selected) = object_at(job, "spec.selector.matchLabels") {
        set(selected, CONTROLLER_UID, uid);
    }
}

fn selector(job: &Object, path: &Path, errors: &mut Errors) {
    let (selector, labels) = (at(job, "spec.selector"), at(job, "spec.template.metadata.labels"));
    if selector.is_null() {
        errors.required(&path.field("selector"), "");
        return;
    }
    rules::label_selector(selector, &path.field("selector"), errors);
    if !rules::selects(selector, labels) {
        let here = path.field("template").field("metadata").field("labels");
        errors.invalid(&here, labels.clone(), "`selector` does not match template `labels`");
    }
}

/// The spec of a Job, also in a CronJob.
pub fn job_spec(spec: &Value, path: &Path, errors: &mut Errors) {
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    for field in counts {
        rules::non_negative_at(spec, field, path, errors);
    }
    rules::one_of_if_set(spec, "completionMode", &["Indexed", "NonIndexed"], path, errors);
    rules::one_of_if_set(spec, "podReplacementPolicy", &["Failed", "TerminatingOrFailed"], path, errors);
    if str_at(spec, "completionMode") == "Indexed" && !has(spec, "completions") {
        let detail = "when completion mode is Indexed";
        errors.required(&path.field("completions"), detail);
    }
    if has(spec, "backoffLimitPerIndex") && str_at(spec, "completionMode") != "Indexed" {
        let value = at(spec, "backoffLimitPerIndex").clone();
        errors.invalid(&path.field("backoffLimitPerIndex"), value, "requires indexed completion mode");
    }
    policies::check(spec, path, errors);
    let template = path.field("template");
    if !matches!(str_at(spec, "template.spec.restartPolicy"), "OnFailure" | "Never") {
        let here = template.field("spec").field("restartPolicy");
        errors.required(&here, "valid values: \"OnFailure\", \"Never\"");
    }
    workloads::pod_template(at(spec, "template"), &template, errors);
}

fn status(job: &Object) -> &'static str {
    let is = |kind: &str| {
        let mut conditions = list_at(job, "status.conditions").iter();
        conditions.any(|c| str_at(c, "type") == kind && str_at(c, "status") == "True")
    };
    match () {
        () if is("Complete") => "Complete",
        () if is("Failed") => "Failed",
        () if has(job, "metadata.deletionTimestamp") => "Terminating",
        () if is("Suspended") => "Suspended",
        () if is("FailureTarget") => "FailureTarget",
        () if is("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn completions(job: &Object) -> String {
    let done = workloads::count(job, "status.succeeded");
    match (i64_at(job, "spec.completions"), workloads::count(job, "spec.parallelism")) {
        (Some(all), _) => format!("{done}/{all}"),
        (None, parallel) if parallel > 1 => format!("{done}/1 of {parallel}"),
        (None, _) => format!("{done}/1"),
    }
}

fn duration(job: &Object, now: Timestamp) -> String {
    let time = |path| human::timestamp(at(job, path));
    let Some(start) = time("status.startTime") else { return String::new() };
    let end = time("status.completionTime").unwrap_or(now);
    human::duration(end.as_second() - start.as_second())
}
