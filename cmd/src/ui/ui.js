"use strict";
// What is shown. Text of the cluster becomes text nodes and attribute values here and nothing else: never markup, never a
// link's target beyond this page.

const $ = (id) => document.getElementById(id);

// An element with its attributes and children; strings become text.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null).map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

// Rows of cells; a cell is text, an element, or {text, class}.
function table(names, rows) {
  const cell = (value, at) => {
    const plain = value === undefined || value === null || typeof value !== "object" || value instanceof Node;
    const made = make("td", { "data-name": names[at], class: plain ? undefined : value.class });
    made.append(plain ? value ?? "" : value.text);
    return made;
  };
  if (!rows.length) return make("p", { class: "dim" }, "Nothing here.");
  return make("table", {},
    make("thead", {}, make("tr", {}, ...names.map((name) => make("th", {}, name)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell)))));
}

const list = (pairs) => make("dl", {}, ...pairs.filter(([, value]) => value !== undefined && value !== "").flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
const link = (text, ...parts) => make("a", { href: "#" + parts.map(encodeURIComponent).join("/") }, text);

function age(time) {
  const seconds = Math.max(0, (Date.now() - Date.parse(time)) / 1000);
  return Number.isFinite(seconds) ? span(seconds) : "";
}

function span(seconds) {
  if (seconds < 120) return Math.floor(seconds) + "s";
  if (seconds < 7200) return Math.floor(seconds / 60) + "m";
  if (seconds < 172800) return Math.floor(seconds / 3600) + "h";
  return Math.floor(seconds / 86400) + "d";
}

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (bytes >= 1024 && at < units.length - 1) { bytes /= 1024; at += 1; }
  return (at ? bytes.toFixed(1) : bytes) + " " + units[at];
}

const condition = (object, type) => (object.status?.conditions || []).find((one) => one.type === type);
const lastSeen = (event) => event.series?.lastObservedTime || event.lastTimestamp || event.eventTime || event.metadata.creationTimestamp;

// In kubectl's words, with what is wrong.
function podState(pod) {
  const status = pod.status || {};
  const all = [...(status.initContainerStatuses || []), ...(status.containerStatuses || [])];
  const reason = all.map((one) => one.state?.waiting?.reason).find((why) => why && why !== "PodInitializing");
  if (pod.metadata.deletionTimestamp) return { text: "Terminating", class: "warn" };
  if (reason) return { text: reason, class: reason === "ContainerCreating" ? "warn" : "bad" };
  if (status.phase === "Running") return condition(pod, "Ready")?.status === "True" ? { text: "Running", class: "good" } : { text: "Not ready", class: "warn" };
  const bad = status.phase === "Failed" || status.phase === "Unknown";
  return { text: status.reason || status.phase || "Unknown", class: bad ? "bad" : status.phase === "Pending" ? "warn" : "dim" };
}

const ready = (pod) => {
  const all = pod.status?.containerStatuses || [];
  return all.filter((one) => one.ready).length + "/" + (pod.spec.containers || []).length;
};
const restarts = (pod) => (pod.status?.containerStatuses || []).reduce((sum, one) => sum + (one.restartCount || 0), 0);

// One view at a time: what it follows ends with it.
let shown = new AbortController();
let filter = "";

function begin(...children) {
  shown.abort();
  shown = new AbortController();
  $("main").replaceChildren(...children);
  return shown.signal;
}

// Draws at most once a frame.
function drawn(target, draw) {
  let due = false;
  return (all) => {
    if (due) { due = all; return; }
    due = all;
    requestAnimationFrame(() => { const now = due; due = false; target.replaceChildren(draw([...now.values()])); live(""); });
  };
}

function live(text, bad) {
  $("live").textContent = text || "live";
  $("live").className = bad ? "bad" : "";
}

const failed = (target) => (error) => {
  if (error.code === 401) return logout("The token is not good any more.");
  if (error.code === 403) target.replaceChildren(make("p", { class: "bad" }, error.message));
  else live("no answer: " + error.message, true);
};

function follow(path, target, draw, signal) {
  api.follow(path, drawn(target, draw), failed(target), signal);
}

const section = (title) => {
  const body = make("div", {}, make("p", { class: "dim" }, "…"));
  return [make("h2", {}, title), body];
};

const views = {
  Nodes() {
    const [title, body] = section("Nodes");
    const signal = begin(title, body);
    follow("/api/v1/nodes", body, (nodes) => table(["Name", "State", "Version", "Pods", "CPU", "Memory", "Age"], nodes.sort(byName).map((node) => {
      const is = condition(node, "Ready");
      const short = (node.status?.conditions || []).filter((one) => one.type.endsWith("Pressure") && one.status === "True").map((one) => one.type);
      const good = is?.status === "True" && !short.length;
      const words = good ? "Ready" : short.join(", ") || is?.message || "its kubelet has not reported yet";
      const state = words + (node.spec?.unschedulable ? ", cordoned" : "");
      const can = node.status?.allocatable || {};
      return [node.metadata.name, { text: state, class: good ? "good" : "bad" }, node.status?.nodeInfo?.kubeletVersion, can.pods, can.cpu, can.memory, age(node.metadata.creationTimestamp)];
    })), signal);
  },

  Pods() {
    const body = make("div", {}, make("p", { class: "dim" }, "…"));
    let last = new Map();
    const draw = (pods) => table(["Name", "Namespace", "State", "Ready", "Restarts", "Node", "Age"], pods
      .filter((pod) => (pod.metadata.namespace + "/" + pod.metadata.name + " " + podState(pod).text).includes(filter))
      .sort((one, other) => one.metadata.namespace.localeCompare(other.metadata.namespace) || byName(one, other))
      .map((pod) => [link(pod.metadata.name, "pod", pod.metadata.namespace, pod.metadata.name), pod.metadata.namespace, podState(pod), ready(pod), restarts(pod), pod.spec.nodeName, age(pod.metadata.creationTimestamp)]));
    const again = (all) => { last = all; update(all); };
    const update = drawn(body, draw);
    const search = make("input", { type: "search", placeholder: "namespace, name or state", "aria-label": "Filter", value: filter, input: (event) => { filter = event.target.value; update(last); } });
    const signal = begin(make("h2", {}, "Pods"), make("div", { class: "tools" }, search), body);
    api.follow("/api/v1/pods", again, failed(body), signal);
  },

  Pending() {
    const [title, body] = section("Why pods wait");
    const signal = begin(title, make("p", { class: "hint" }, "What the scheduler or the node says of each pod that is Pending. “coracle why NAMESPACE/POD” asks every plugin about every node."), body);
    follow("/api/v1/pods?fieldSelector=" + encodeURIComponent("status.phase=Pending"), body, (pods) => table(["Pod", "For", "Why"], pods.map((pod) => {
      const scheduled = condition(pod, "PodScheduled");
      const containers = [...(pod.status?.initContainerStatuses || []), ...(pod.status?.containerStatuses || [])].map((one) => one.state?.waiting).filter(Boolean);
      const gates = (pod.spec.schedulingGates || []).map((gate) => gate.name);
      const why = gates.length ? "waits for the gates " + gates.join(", ")
        : scheduled?.status === "False" ? scheduled.message || scheduled.reason
        : containers.map((one) => one.reason + (one.message ? ": " + one.message : "")).join("; ") || "starting on " + (pod.spec.nodeName || "no node yet");
      return [link(pod.metadata.namespace + "/" + pod.metadata.name, "pod", pod.metadata.namespace, pod.metadata.name), age(pod.metadata.creationTimestamp), why];
    })), signal);
  },

  Events() {
    const [title, body] = section("Events");
    const signal = begin(title, body);
    follow("/api/v1/events", body, (events) => table(["When", "Type", "Object", "Reason", "Message", "Times"], events.sort(newest).slice(0, 300).map(eventRow)), signal);
  },

  async System() {
    const health = make("div"), figures = make("div"), certificates = make("div");
    const signal = begin(make("h2", {}, "Health"), health, make("h2", {}, "Store and disk"), figures, make("h2", {}, "Certificates"), certificates);
    while (!signal.aborted) {
      await Promise.all([showHealth(health), showFigures(figures, certificates)]);
      await new Promise((done) => { const timer = setTimeout(done, 5000); signal.addEventListener("abort", () => { clearTimeout(timer); done(); }); });
    }
  },
};

async function showHealth(target) {
  try {
    const answer = await fetch("/readyz?verbose", { headers: { Authorization: "Bearer " + api.token }, credentials: "omit", cache: "no-store" });
    const lines = (await answer.text()).split("\n").filter((line) => line.startsWith("["));
    const bad = lines.filter((line) => line.startsWith("[-]"));
    target.replaceChildren(bad.length ? make("pre", { class: "bad" }, bad.join("\n")) : make("p", { class: answer.ok ? "good" : "bad" }, answer.ok ? "All " + lines.length + " checks pass." : "not ready"));
    live("");
  } catch (error) { live("no answer: " + error.message, true); }
}

async function showFigures(target, certificates) {
  let found;
  try { found = samples(await api.text("/metrics")); } catch (error) {
    target.replaceChildren(make("p", { class: "bad" }, error.message));
    certificates.replaceChildren(make("p", { class: "dim" }, "They stand in the metrics, too."));
    return;
  }
  const value = (name) => found[name]?.[0]?.value;
  const shownSize = (name) => (value(name) === undefined ? undefined : size(value(name)));
  const backup = value("coracle_backup_last_success_timestamp_seconds");
  const again = (found.coracle_component_restarts_total || []).filter((one) => one.value > 0).map((one) => one.labels.component + ": " + one.value);
  target.replaceChildren(list([
    ["Objects", value("coracle_store_objects")],
    ["Store on disk", shownSize("coracle_store_disk_bytes")],
    ["Takes writes", value("coracle_store_read_only") === undefined ? undefined : value("coracle_store_read_only") ? "no" : "yes"],
    ["Incidents", value("coracle_store_incidents")],
    ["Disk free", value("coracle_data_dir_bytes") && shownSize("coracle_data_dir_free_bytes") + " of " + shownSize("coracle_data_dir_bytes")],
    ["Memory of the process", shownSize("process_resident_memory_bytes")],
    ["Components started again", again.join(", ") || "none"],
    ["Last backup", backup ? age(new Date(backup * 1000)) + " ago" : "none"],
  ]));
  const ends = (found.coracle_certificate_expiration_timestamp_seconds || []).sort((one, other) => one.value - other.value);
  certificates.replaceChildren(table(["Certificate", "Ends", "Left"], ends.map(({ labels, value: end }) => {
    const left = end - Date.now() / 1000;
    return [labels.certificate, new Date(end * 1000).toISOString().slice(0, 10), { text: left < 0 ? "over" : span(left), class: left < 86400 ? "bad" : "good" }];
  })));
}

const byName = (one, other) => one.metadata.name.localeCompare(other.metadata.name);
const newest = (one, other) => Date.parse(lastSeen(other)) - Date.parse(lastSeen(one));
const eventRow = (event) => {
  const about = event.involvedObject || {};
  const object = about.kind + " " + (about.namespace ? about.namespace + "/" : "") + about.name;
  const shownObject = about.kind === "Pod" ? link(object, "pod", about.namespace, about.name) : object;
  return [age(lastSeen(event)), { text: event.type || "", class: event.type === "Warning" ? "warn" : "dim" }, shownObject, event.reason, event.message, event.series?.count || event.count || 1];
};

// One pod: its state, events, logs and a command.
function podView(namespace, name) {
  const path = "/api/v1/namespaces/" + encodeURIComponent(namespace) + "/pods";
  const of = (selector) => "?fieldSelector=" + encodeURIComponent(selector);
  const state = make("div"), events = make("div"), log = make("pre", { id: "log" }), shell = make("pre", { id: "shell" });
  const container = make("select", { "aria-label": "Container" });
  const command = make("input", { placeholder: "command, such as: ls -l /", "aria-label": "Command", autocomplete: "off", spellcheck: "false" });
  let following, running;
  const showLog = async () => {
    following?.abort();
    following = new AbortController();
    signal.addEventListener("abort", () => following.abort());
    log.textContent = "";
    try {
      const query = new URLSearchParams({ container: container.value, follow: "true", tailLines: "200" });
      const answer = await api.ask(path + "/" + encodeURIComponent(name) + "/log?" + query, { signal: following.signal });
      for await (const line of lines(answer.body)) say(log, line + "\n");
    } catch (error) { if (error.name !== "AbortError") say(log, error.message + "\n", true); }
  };
  const run = (event) => {
    event.preventDefault();
    const words = command.value.match(/"[^"]*"|'[^']*'|\S+/g)?.map((word) => word.replace(/^(["'])(.*)\1$/, "$2"));
    if (!words) return;
    if (running) { running.send(command.value + "\n"); say(shell, command.value + "\n"); command.value = ""; return; }
    say(shell, "$ " + command.value + "\n");
    command.value = "";
    running = api.exec(namespace, name, container.value, words, (text, bad, over) => { say(shell, text, bad); if (over) running = undefined; });
  };
  container.addEventListener("change", showLog);
  const signal = begin(
    make("h2", {}, namespace + "/" + name), state,
    make("h2", {}, "Events"), events,
    make("div", { class: "tools" }, container, make("button", { type: "button", click: () => running?.end() }, "End input"), make("button", { type: "button", click: () => running?.close() }, "Stop command")),
    make("h2", {}, "Log"), log,
    make("h2", {}, "Command"), make("form", { class: "tools", submit: run }, command, make("button", {}, "Run")), shell);
  signal.addEventListener("abort", () => running?.close());
  follow(path + of("metadata.name=" + name), state, (pods) => {
    const pod = pods[0];
    if (!pod) return make("p", { class: "bad" }, "It is gone.");
    const names = [...(pod.spec.containers || []), ...(pod.spec.initContainers || [])].map((one) => one.name);
    if (!container.options.length) { container.append(...names.map((one) => make("option", {}, one))); showLog(); }
    const is = podState(pod);
    return list([
      ["State", make("span", { class: is.class }, is.text)], ["Ready", ready(pod)], ["Restarts", restarts(pod)],
      ["Node", pod.spec.nodeName], ["Address", pod.status?.podIP], ["Images", pod.spec.containers.map((one) => one.image).join(", ")],
      ["Scheduling", condition(pod, "PodScheduled")?.message], ["Why", condition(pod, "Ready")?.message], ["Age", age(pod.metadata.creationTimestamp)],
    ]);
  }, signal);
  follow("/api/v1/namespaces/" + encodeURIComponent(namespace) + "/events" + of("involvedObject.name=" + name), events, (all) => table(["When", "Type", "Object", "Reason", "Message", "Times"], all.sort(newest).map(eventRow)), signal);
}

// Appends text; keeps the end in sight, and the page small.
function say(target, text, bad) {
  const atEnd = target.scrollTop + target.clientHeight >= target.scrollHeight - 4;
  target.append(bad ? make("span", { class: "bad" }, text) : text);
  while (target.childNodes.length > 2000) target.firstChild.remove();
  if (atEnd) target.scrollTop = target.scrollHeight;
}

function route() {
  if (!api.token) return;
  let parts;
  try { parts = location.hash.slice(1).split("/").map(decodeURIComponent); } catch { parts = []; }
  const [view, namespace, name] = parts;
  for (const entry of $("nav").children) entry.toggleAttribute("aria-current", entry.textContent === (view === "pod" ? "Pods" : view || "Nodes"));
  if (view === "pod" && namespace && name) return podView(namespace, name);
  (Object.hasOwn(views, view) ? views[view] : views.Nodes)();
}

const loginForm = $("login");

function logout(why) {
  api.token = "";
  begin(loginForm);
  $("why").textContent = why || "";
  $("nav").hidden = $("out").hidden = true;
  $("live").textContent = "";
}

loginForm.addEventListener("submit", async (event) => {
  event.preventDefault();
  api.token = $("token").value.trim();
  $("token").value = "";
  try {
    // Whoever has a good token may ask who it is of.
    const review = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
    await api.ask("/apis/authentication.k8s.io/v1/selfsubjectreviews", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(review) });
  } catch (error) {
    return logout(error.code === 401 ? "The token is not good." : error.message);
  }
  $("nav").replaceChildren(...Object.keys(views).map((name) => link(name, name)));
  $("nav").hidden = $("out").hidden = false;
  route();
});
$("out").addEventListener("click", () => logout());
window.addEventListener("hashchange", route);
// Until here a browser would have sent the form by itself, to nobody.
loginForm.querySelector("button").disabled = false;
