//! Jobs.

use super::{policies, status, *};
use crate::{Facts, FieldLabels, Refusal};

pub struct Jobs;

/// The label by which a Job finds its pods.
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

const TOO_MANY_INDEXES: &str = "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism \
    higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail";

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

impl ResourceFacts for Jobs {
    fn facts(&self) -> Facts {
        Facts { returns_deleted: false, unconditional_update: true }
    }

    fn has_status(&self) -> bool {
        true
    }
}

impl CreateStrategy for Jobs {
    fn warnings(&self, new: &Object, old: Option<&Object>) -> Vec<String> {
        let mut found = workloads::named_warnings(new, old, workloads::TEMPLATE);
        let more = |field: &str, limit| i64_at(&new["spec"], field).is_some_and(|count| count > limit);
        let indexed = str_at(new, "spec.completionMode") == "Indexed";
        if indexed && more("completions", 100_000) && more("parallelism", 10_000) {
            found.push(TOO_MANY_INDEXES.to_owned());
        }
        found
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
        default(spec, "manualSelector", false);
        policies::defaults(spec);
    }

    /// A Job selects its own pods by its uid, unless the client selects them by hand.
    fn prepare_create(&self, object: &mut Object, _env: &Env) {
        set(object, "status", json!({}));
        if !bool_at(object, "spec.manualSelector") {
            generate_selector(object);
        }
    }

    /// A Job that has its template's labels has all those of its template, the generated ones too.
    fn complete_labels(&self, object: &mut Object, sent: &Value) {
        let sent = sent.as_object().is_some_and(|labels| !labels.is_empty());
        if !sent && entries_at(object, "metadata.labels").next().is_some() {
            let labels = at(object, "spec.template.metadata.labels").clone();
            object["metadata"]["labels"] = labels;
        }
    }

    /// Where the template had none, the generated ones are the Job's own when nobody judges them any more.
    fn complete_judged(&self, object: &mut Object) {
        labels_of_template(object);
    }

    fn validate(&self, object: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let path = Path::root("spec");
        generated_selector(object, errors);
        job_spec(&object["spec"], &path, errors);
        selector(object, &path, errors);
        let completions = i64_at(object, "spec.completions").unwrap_or(0);
        if str_at(object, "spec.completionMode") == "Indexed" && completions > 0 {
            hostname(name(object), completions - 1, errors);
        }
    }
}

impl UpdateStrategy for Jobs {
    fn validate_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        let errors = &mut Errors(errors);
        let completions = at(new, "spec.completions");
        if str_at(new, "spec.completionMode") != "Indexed" {
            rules::immutable(new, old, &["spec.completions"], errors);
        } else if completions != at(old, "spec.completions")
            && !completions.is_null()
            && completions != at(new, "spec.parallelism")
        {
            let here = Path::root("spec").field("completions");
            let detail = "can only be modified in tandem with spec.parallelism";
            errors.invalid(&here, completions.clone(), detail);
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
}

impl StatusStrategy for Jobs {
    fn validate_status_update(&self, new: &Object, old: &Object, _env: &Env, errors: &mut Vec<FieldError>) {
        status::update(new, old, &mut Errors(errors));
    }
}

impl TableConvertor for Jobs {
    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Value> {
        let [containers, images] = workloads::wide_cells(object);
        vec![
            name(object).into(),
            state(object).into(),
            completions(object).into(),
            duration(object, now).into(),
            table::age(object, now),
            containers,
            images,
            table::selector(at(object, "spec.selector")).into(),
        ]
    }
}

impl SelectableFields for Jobs {
    fn field_labels(&self, _group: &str) -> FieldLabels {
        FieldLabels { names: &["status.successful"], refusal: Refusal::Job, ..FieldLabels::CORE }
    }

    fn fields(&self, object: &Object) -> Vec<(&'static str, String)> {
        vec![("status.successful", workloads::count(object, "status.succeeded").to_string())]
    }
}

crate::usual!(Jobs: DeleteStrategy, TransactionStrategy, ResetFieldsStrategy);

/// Where the pods of a suspended Job may run and what they ask for is open until it has begun, and again whenever none of
/// them is left (KEP-2926, KEP-5440).
fn template(new: &Object, old: &Object, errors: &mut Errors) {
    let (path, before) = (Path::root("spec").field("template"), at(old, "spec.template"));
    let mut leveled = at(new, "spec.template").clone();
    let idle = conditions::is_true(old, "Suspended") && workloads::count(old, "status.active") == 0;
    if bool_at(old, "spec.suspend") && (!has(old, "status.startTime") || idle) {
        level_places(&mut leveled, before);
        level_resources(&mut leveled, before);
    }
    if leveled != *before {
        errors.invalid(&path, at(new, "spec.template").clone(), "field is immutable");
    }
}

fn level_places(leveled: &mut Value, before: &Value) {
    let mut level = |holder: &str, fields: &[&str]| {
        let none = fields.iter().all(|field| !has(at(before, holder), field));
        let place = if none { at_mut(leveled, holder) } else { object_at(leveled, holder) };
        let Some(place) = place else { return };
        fields.iter().for_each(|field| copy_field(place, at(before, holder), field));
    };
    level("metadata", &["annotations", "labels"]);
    level("spec", &["nodeSelector", "tolerations", "schedulingGates"]);
    level("spec.affinity", &["nodeAffinity"]);
    if !has(before, "spec.affinity") && at(leveled, "spec.affinity") == &json!({}) {
        remove(leveled, "spec.affinity");
    }
}

/// Containers that kept their names and places.
fn level_resources(leveled: &mut Value, before: &Value) {
    for list in ["spec.containers", "spec.initContainers"] {
        let old = list_at(before, list);
        if old.len() == list_at(leveled, list).len() {
            let pairs = each_mut(leveled, list).zip(old).filter(|(new, old)| new["name"] == old["name"]);
            pairs.for_each(|(new, old)| copy_field(new, old, "resources"));
        }
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

/// What the pods of a Job are labelled with, and what with: keys that upstream made up before it had its prefix, and
/// those with it.
fn own_labels(job: &Object) -> [(&'static str, String); 4] {
    let (uid, name) = (str_at(job, "metadata.uid").to_owned(), name(job).to_owned());
    [
        ("controller-uid", uid.clone()),
        ("job-name", name.clone()),
        (CONTROLLER_UID, uid),
        ("batch.kubernetes.io/job-name", name),
    ]
}

/// What the client has set is left, for validation to refuse.
fn generate_selector(job: &mut Object) {
    let own = own_labels(job);
    let uid = str_at(job, "metadata.uid").to_owned();
    let Some(labels) = object_at(job, "spec.template.metadata.labels") else { return };
    for (key, value) in own {
        default(labels, key, value);
    }
    if let Some(selected) = object_at(job, "spec.selector.matchLabels") {
        default(selected, CONTROLLER_UID, uid);
    }
}

/// A generated selector selects the Job's own pods and no others.
fn generated_selector(job: &Object, errors: &mut Errors) {
    if bool_at(job, "spec.manualSelector") || !has(job, "spec.selector") {
        return;
    }
    let path = Path::root("spec").field("template").field("metadata").field("labels");
    let labels = at(job, "spec.template.metadata.labels");
    let own = own_labels(job);
    for (key, value) in &own {
        let (here, detail) = (path.key(key), format!("must be '{value}'"));
        match labels.get(key) {
            None => errors.required(&here, &detail),
            Some(found) if found != value => errors.invalid(&here, labels.clone(), &detail),
            Some(_) => {}
        }
    }
    let expected: Value = own.into_iter().collect();
    let selector = at(job, "spec.selector");
    if !rules::selects(selector, &expected) {
        let here = Path::root("spec").field("selector");
        errors.invalid(&here, selector.clone(), "`selector` not auto-generated");
    }
}

/// The last pod of an Indexed Job gets the longest host name.
fn hostname(job: &str, last: i64, errors: &mut Errors) {
    let longest = format!("{job}-{last}");
    if !coracle_api::validation::dns1123_label(&longest).is_empty() {
        let detail = format!("will not able to create pod with invalid DNS label: {longest}");
        errors.invalid(&Path::root("metadata").field("name"), job, &detail);
    }
}

fn selector(job: &Object, path: &Path, errors: &mut Errors) {
    let (selector, labels) = (at(job, "spec.selector"), at(job, "spec.template.metadata.labels"));
    if selector.is_null() {
        errors.required(&path.field("selector"), "");
    } else {
        rules::label_selector(selector, &path.field("selector"), errors);
    }
    if selector.is_null() || !rules::selects(selector, labels) {
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
    rules::one_of_if_set(spec, "completionMode", &["NonIndexed", "Indexed"], path, errors);
    policies::check(spec, path, errors);
    let template = path.field("template");
    workloads::pod_template(at(spec, "template"), &template, errors);
    restart_policy(spec, &template.field("spec").field("restartPolicy"), errors);
}

fn restart_policy(spec: &Value, path: &Path, errors: &mut Errors) {
    match str_at(spec, "template.spec.restartPolicy") {
        "Always" | "" => errors.required(path, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if has(spec, "podFailurePolicy") => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.invalid(path, "OnFailure", detail);
        }
        "OnFailure" | "Never" => {}
        other => errors.not_supported(path, other, &["OnFailure", "Never"]),
    }
}

fn state(job: &Object) -> &'static str {
    let is = |kind: &str| conditions::is_true(job, kind);
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
    let time = |path| duration::timestamp(at(job, path));
    let Some(start) = time("status.startTime") else { return String::new() };
    let end = time("status.completionTime").unwrap_or(now);
    duration::duration(end.as_second() - start.as_second())
}
