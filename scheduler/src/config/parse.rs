//! Upstream's `KubeSchedulerConfiguration` turned into ours.

use super::fields::{Fields, Notes};
use super::legacy::Disabled;
use super::merge::{Set, merge};
use super::{Config, Election, Extender, Mistakes, Parsed, Profile, extender, legacy};
use crate::framework::{Framework, Point};
use crate::framework::{Handle, Registry};
use coracle_api::duration;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

const GROUP: &str = "kubescheduler.config.k8s.io";
const KIND: &str = "KubeSchedulerConfiguration";

struct Reader<'r> {
    registry: &'r Registry,
    notes: Notes,
    beta2: bool,
}

pub fn parse(text: &str, registry: &Registry) -> Result<Parsed, Mistakes> {
    let mut reader = Reader { registry, notes: Notes::default(), beta2: false };
    let config = match serde_saphyr::from_str::<Value>(text) {
        Ok(value) => reader.config(value),
        Err(error) => {
            reader.notes.mistake("", format!("not YAML: {error}"));
            Config::default()
        }
    };
    let Notes { mistakes, warnings } = reader.notes;
    if mistakes.is_empty() { Ok(Parsed { config, warnings }) } else { Err(Mistakes(mistakes)) }
}

impl Reader<'_> {
    fn config(&mut self, value: Value) -> Config {
        self.version(&value);
        let mut config = Config::default();
        let mut notes = std::mem::take(&mut self.notes);
        let mut fields = Fields::new("", value, &mut notes);
        fields.take("apiVersion");
        fields.take("kind");
        let parallelism =
            fields.number("parallelism", |n| n > 0, "should be an integer value greater than zero");
        let seconds = |n: i64| Duration::from_secs(u64::try_from(n).unwrap_or(1));
        let first = fields.number("podInitialBackoffSeconds", |n| n > 0, "must be greater than 0");
        let why = "must be greater than or equal to PodInitialBackoffSeconds";
        let longest = fields.number("podMaxBackoffSeconds", |n| n >= first.unwrap_or(1), why);
        config.backoff.0 = first.map_or(config.backoff.0, seconds);
        config.backoff.1 = longest.map_or(config.backoff.1.max(config.backoff.0), seconds);
        config.percentage_of_nodes_to_score = percentage(&mut fields).unwrap_or(0);
        let election = fields.take("leaderElection");
        let connection = fields.take("clientConnection");
        let ignored = [
            "enableProfiling",
            "enableContentionProfiling",
            "delayCacheUntilActive",
            "healthzBindAddress",
            "metricsBindAddress",
        ];
        for name in ignored {
            if fields.take(name).is_some() {
                fields
                    .notes
                    .warn(format!("{name} has no meaning here: the process serves these for all components"));
            }
        }
        let (profiles, extenders) = (fields.list("profiles"), fields.list("extenders"));
        fields.finish();
        self.notes = notes;
        if parallelism.is_some() {
            self.notes.warn(
                "parallelism has no meaning here: one task decides, and keeps what it knows".to_owned(),
            );
        }
        self.connection(connection);
        config.election = self.election(election);
        config.extenders = self.extenders(extenders);
        config.profiles = self.profiles(profiles, &config.extenders);
        config
    }

    fn version(&mut self, value: &Value) {
        let version = value["apiVersion"].as_str().unwrap_or_default();
        match version.strip_prefix(GROUP) {
            Some("/v1") => {}
            Some("/v1beta3") => self.notes.warn(format!("{GROUP}/v1beta3 is converted to {GROUP}/v1")),
            Some("/v1beta2") => {
                self.beta2 = true;
                self.notes.warn(format!("{GROUP}/v1beta2 is converted to {GROUP}/v1"));
            }
            _ => {
                let why = format!(
                    "Unsupported value: {version:?}: supported values: \"{GROUP}/v1\", \
                     \"{GROUP}/v1beta3\", \"{GROUP}/v1beta2\""
                );
                self.notes.mistake("apiVersion", why);
            }
        }
        if value["kind"] != KIND {
            let why = format!("Unsupported value: {}: supported values: \"{KIND}\"", value["kind"]);
            self.notes.mistake("kind", why);
        }
    }

    fn connection(&mut self, value: Option<Value>) {
        let Some(value) = value else { return };
        let mut fields = Fields::new("clientConnection", value, &mut self.notes);
        for name in ["kubeconfig", "acceptContentTypes", "contentType", "qps", "burst"] {
            let given = fields.take(name);
            if let Some(burst) = given.as_ref().filter(|given| name == "burst" && given.as_i64() < Some(0)) {
                fields.refuse(name, burst, "must be non-negative");
            } else if given.is_some() {
                let text =
                    format!("clientConnection.{name} has no meaning here: --kubeconfig says whom to ask");
                fields.notes.warn(text);
            }
        }
        fields.finish();
    }

    fn election(&mut self, value: Option<Value>) -> Election {
        let defaults = Election::default();
        let Some(value) = value else { return defaults };
        let mut fields = Fields::new("leaderElection", value, &mut self.notes);
        let elect = fields.flag("leaderElect").unwrap_or(true);
        let lock = fields.text("resourceLock");
        if let Some(lock) = lock.filter(|lock| elect && lock != "leases") {
            fields.refuse("resourceLock", &lock.into(), "resourceLock value must be \"leases\"");
        }
        let mut time = |name: &str, default: Duration| {
            let Some(text) = fields.text(name) else { return default };
            let read = duration::parse(&text);
            match read {
                Some(time) if !time.is_zero() => return time,
                Some(_) => fields.refuse(name, &text.into(), "must be greater than zero"),
                None => fields.refuse(name, &text.into(), "must be a duration such as 15s"),
            }
            default
        };
        let lease_duration = time("leaseDuration", defaults.lease_duration);
        let renew_deadline = time("renewDeadline", defaults.renew_deadline);
        let retry_period = time("retryPeriod", defaults.retry_period);
        if elect && lease_duration <= renew_deadline {
            let value = format!("{lease_duration:?}").into();
            fields.refuse("leaseDuration", &value, "LeaseDuration must be greater than RenewDeadline");
        }
        if elect && renew_deadline <= retry_period {
            let value = format!("{renew_deadline:?}").into();
            fields.refuse("renewDeadline", &value, "RenewDeadline must be greater than RetryPeriod");
        }
        let election = Election {
            elect,
            namespace: fields.text("resourceNamespace").unwrap_or(defaults.namespace),
            lease: fields.text("resourceName").unwrap_or(defaults.lease),
            lease_duration,
            renew_deadline,
            retry_period,
        };
        fields.finish();
        election
    }

    fn extenders(&mut self, list: Vec<(String, Value)>) -> Vec<Extender> {
        let parse = |(path, value): (String, Value)| extender::parse(&path, value, &mut self.notes);
        let extenders: Vec<Extender> = list.into_iter().map(parse).collect();
        let binders = extenders.iter().filter(|e| e.bind_verb.is_some()).count();
        if binders > 1 {
            let found: Value = format!("found {binders} extenders implementing bind").into();
            self.notes.invalid("extenders", &found, "only one extender can implement bind");
        }
        let mut seen = HashSet::new();
        for (i, extender) in extenders.iter().enumerate() {
            for (j, resource) in extender.managed_resources.iter().enumerate() {
                if !seen.insert(&resource.name) {
                    let path = format!("extenders[{i}].managedResources[{j}].name");
                    let name: Value = resource.name.clone().into();
                    self.notes.invalid(&path, &name, "duplicate extender managed resource name");
                }
            }
        }
        extenders
    }

    fn profiles(&mut self, list: Vec<(String, Value)>, extenders: &[Extender]) -> Vec<Profile> {
        let mut profiles: Vec<Profile> = Vec::new();
        let many = list.len() > 1;
        for (path, value) in list {
            let profile = self.profile(&path, value, many);
            if let Some(twin) = profiles.iter().position(|p| p.scheduler_name == profile.scheduler_name) {
                let why = format!("Duplicate value: \"profiles[{twin}].schedulerName\"");
                self.notes.mistake(&format!("{path}.schedulerName"), why);
            }
            profiles.push(profile);
        }
        if profiles.is_empty() {
            let mut profile = Profile::default_for("default-scheduler", self.registry);
            profile.plugins = merge(&Set::default(), &BTreeMap::new(), self.registry, self.beta2);
            profiles.push(profile);
        }
        for (i, profile) in profiles.iter().enumerate().skip(1) {
            if profile.plugins.get(&Point::QueueSort) != profiles[0].plugins.get(&Point::QueueSort) {
                let path = format!("profiles[{i}].plugins.queueSort");
                self.notes.mistake(&path, "Invalid value: has to match for all profiles");
            }
        }
        profiles.iter_mut().for_each(|profile| leave_to_extenders(profile, extenders));
        self.check(&profiles);
        profiles
    }

    /// Makes every profile once, without an API, so that what cannot run is refused now.
    fn check(&mut self, profiles: &[Profile]) {
        if !self.notes.mistakes.is_empty() {
            return;
        }
        for (i, profile) in profiles.iter().enumerate() {
            if let Err(error) = Framework::new(profile, self.registry, &Handle::offline()) {
                self.notes.mistake(&format!("profiles[{i}]"), error.to_string());
            }
        }
    }

    fn profile(&mut self, path: &str, value: Value, many: bool) -> Profile {
        let mut notes = std::mem::take(&mut self.notes);
        let mut fields = Fields::new(path, value, &mut notes);
        let name = fields.text("schedulerName");
        // Left out, the only profile is the default scheduler's.
        if name.as_ref().map_or(many, String::is_empty) {
            let path = fields.path("schedulerName");
            fields.notes.mistake(&path, "Required value");
        }
        let percentage = percentage(&mut fields);
        let plugins = fields.take("plugins").unwrap_or_default();
        let configs = fields.list("pluginConfig");
        fields.finish();
        self.notes = notes;
        let mut arguments = self.arguments(configs);
        let plugins = self.plugins(&format!("{path}.plugins"), plugins, &mut arguments);
        Profile {
            scheduler_name: name.filter(|n| !n.is_empty()).unwrap_or_else(|| "default-scheduler".to_owned()),
            percentage_of_nodes_to_score: percentage,
            plugins,
            arguments,
        }
    }

    fn plugins(
        &mut self,
        path: &str,
        value: Value,
        arguments: &mut HashMap<String, Value>,
    ) -> BTreeMap<Point, Vec<(String, i64)>> {
        let mut notes = std::mem::take(&mut self.notes);
        let mut fields = Fields::new(path, value, &mut notes);
        let multi = fields.take("multiPoint");
        let sets: Vec<(Point, Option<Value>)> =
            Point::ALL.into_iter().map(|point| (point, fields.take(point.field()))).collect();
        fields.finish();
        self.notes = notes;
        let multi = self.set(&format!("{path}.multiPoint"), multi, arguments);
        let mut own = BTreeMap::new();
        for (point, value) in sets {
            own.insert(point, self.set(&format!("{path}.{}", point.field()), value, arguments));
        }
        merge(&multi, &own, self.registry, self.beta2)
    }

    fn set(&mut self, path: &str, value: Option<Value>, arguments: &mut HashMap<String, Value>) -> Set {
        let Some(value) = value else { return Set::default() };
        let mut notes = std::mem::take(&mut self.notes);
        let mut fields = Fields::new(path, value, &mut notes);
        let (enabled, disabled) = (fields.list("enabled"), fields.list("disabled"));
        fields.finish();
        self.notes = notes;
        let mut set = Set::default();
        for (path, value) in disabled {
            if let Some((name, _)) = self.plugin(&path, value, arguments, true) {
                set.disabled.insert(name);
            }
        }
        let mut given: Vec<Value> = Vec::new();
        for (path, value) in enabled {
            if given.contains(&value["name"]) {
                self.notes.mistake(&format!("{path}.name"), format!("Duplicate value: {}", value["name"]));
                continue;
            }
            given.push(value["name"].clone());
            let Some((name, weight)) = self.plugin(&path, value, arguments, false) else { continue };
            if set.enabled.iter().any(|(n, _)| *n == name) {
                // Two old names can have one successor.
                continue;
            }
            set.enabled.push((name, weight));
        }
        set
    }

    /// One element of `enabled` or `disabled`, its name translated.
    fn plugin(
        &mut self,
        path: &str,
        value: Value,
        arguments: &mut HashMap<String, Value>,
        disabled: bool,
    ) -> Option<(String, i64)> {
        let mut fields = Fields::new(path, value, &mut self.notes);
        let name = fields.text("name").unwrap_or_default();
        let weight =
            fields.number("weight", |w| (0..=i64::from(i32::MAX)).contains(&w), "must not be negative");
        fields.finish();
        if disabled && name == "*" {
            return Some((name, 0));
        }
        if disabled && self.disabled(path, &name, arguments) {
            return None;
        }
        let now = self.translated(path, &name)?;
        if !disabled
            && now != name
            && let Some(given) = legacy::arguments(&name)
        {
            arguments.entry(now.clone()).or_insert(given);
        }
        let weight = weight.filter(|_| legacy::keeps_weight(&name)).unwrap_or(0);
        Some((now, weight))
    }

    /// Whether an older plugin is disabled without any that is there.
    fn disabled(&mut self, path: &str, name: &str, arguments: &mut HashMap<String, Value>) -> bool {
        let what = match legacy::disabled(name).filter(|_| self.registry.points(name).is_none()) {
            None => return false,
            Some(Disabled::Nothing) => "is gone: there is nothing to disable".to_owned(),
            Some(Disabled::Without(now, without)) => {
                let text = format!("is part of {now} now, which gets the arguments {without}");
                arguments.entry(now.to_owned()).or_insert(without);
                text
            }
        };
        self.notes.warn(format!("{path}.name: {name} {what}"));
        true
    }

    /// The plugin of this name, or the one that does its work now.
    fn translated(&mut self, path: &str, name: &str) -> Option<String> {
        if self.registry.points(name).is_some() {
            return Some(name.to_owned());
        }
        let Some((now, note)) = legacy::successor(name) else {
            let why = format!("Not found: {name:?}: there is no such plugin");
            self.notes.mistake(&format!("{path}.name"), why);
            return None;
        };
        let note = if note.is_empty() { String::new() } else { format!(" ({note})") };
        self.notes.warn(format!("{path}.name: {name} is {now} now{note}"));
        Some(now.to_owned())
    }

    fn arguments(&mut self, list: Vec<(String, Value)>) -> HashMap<String, Value> {
        let mut all = HashMap::new();
        let mut given: Vec<String> = Vec::new();
        for (path, value) in list {
            let mut fields = Fields::new(&path, value, &mut self.notes);
            let name = fields.text("name").unwrap_or_default();
            if given.contains(&name) {
                fields.notes.mistake(&path, format!("Duplicate value: {name:?}"));
                continue;
            }
            given.push(name.clone());
            let arguments = legacy::converted(&name, fields.take("args").unwrap_or_default());
            fields.finish();
            let Some(name) = self.translated(&path, &name) else { continue };
            if let Some(Err(mistakes)) = self.registry.make(&name, &Handle::offline(), &arguments) {
                for mistake in mistakes {
                    self.notes.mistake("", format!("{path}.args.{mistake}"));
                }
            }
            if all.insert(name.clone(), arguments).is_some() {
                self.notes.mistake(&path, format!("Duplicate value: {name:?}"));
            }
        }
        all
    }
}

fn percentage(fields: &mut Fields<'_>) -> Option<usize> {
    let name = "percentageOfNodesToScore";
    let number = fields.number(name, |n| (0..=100).contains(&n), "not in valid range [0-100]")?;
    usize::try_from(number).ok()
}

/// Resources that an extender looks after alone are not counted by NodeResourcesFit.
fn leave_to_extenders(profile: &mut Profile, extenders: &[Extender]) {
    let resources = extenders.iter().flat_map(|e| &e.managed_resources);
    let names: Vec<Value> =
        resources.filter(|r| r.ignored_by_scheduler).map(|r| r.name.clone().into()).collect();
    if names.is_empty() {
        return;
    }
    let arguments = profile.arguments.entry("NodeResourcesFit".to_owned()).or_default();
    if arguments.is_null() {
        *arguments = Value::Object(serde_json::Map::new());
    }
    if let Some(arguments) = arguments.as_object_mut() {
        let ignored = arguments.entry("ignoredResources").or_insert_with(|| Value::Array(Vec::new()));
        if let Some(list) = ignored.as_array_mut() {
            list.extend(names);
        }
    }
}
