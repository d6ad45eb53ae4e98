"use strict";
// The API, as whoever holds the token. Nothing here makes elements.

const api = {
  token: "",

  // A request; the answer is thrown as an error with the server's own words unless it is good.
  async ask(path, options = {}) {
    const headers = { ...options.headers };
    if (this.token) headers.Authorization = "Bearer " + this.token;
    const answer = await fetch(path, { ...options, headers, credentials: "omit", redirect: "error", cache: "no-store" });
    if (answer.ok) return answer;
    let why = answer.status + " " + answer.statusText;
    try { why = (await answer.json()).message || why; } catch { /* not every answer has words */ }
    throw Object.assign(new Error(why), { code: answer.status });
  },

  async json(path) { return (await this.ask(path)).json(); },
  async text(path) { return (await this.ask(path)).text(); },

  // Lists and then watches; `changed` is told of the whole map after each batch. Ends with the signal.
  async follow(path, changed, failed, signal) {
    let pause = 500;
    while (!signal.aborted) {
      try {
        const list = await (await this.ask(path, { signal })).json();
        const all = new Map((list.items || []).map((item) => [item.metadata.uid, item]));
        changed(all);
        pause = 500;
        let version = list.metadata.resourceVersion;
        for (;;) {
          const query = "watch=1&allowWatchBookmarks=true&resourceVersion=" + encodeURIComponent(version);
          const answer = await this.ask(path + (path.includes("?") ? "&" : "?") + query, { signal });
          let told = false;
          for await (const line of lines(answer.body)) {
            const event = JSON.parse(line);
            if (event.type === "ERROR") { told = true; break; }
            version = event.object.metadata.resourceVersion;
            if (event.type === "BOOKMARK") continue;
            if (event.type === "DELETED") all.delete(event.object.metadata.uid);
            else all.set(event.object.metadata.uid, event.object);
            changed(all);
          }
          if (told) break;
        }
      } catch (error) {
        if (signal.aborted) return;
        failed(error);
        // Who may not see it will not be let in by asking again.
        if (error.code === 401 || error.code === 403) return;
        await new Promise((done) => setTimeout(done, pause));
        pause = Math.min(pause * 2, 15000);
      }
    }
  },

  // The socket of exec: channels 1 and 2 are what it prints, 3 how it ended.
  exec(namespace, pod, container, command, told) {
    const query = new URLSearchParams({ container, stdin: "true", stdout: "true", stderr: "true", tty: "false" });
    command.forEach((word) => query.append("command", word));
    const path = "/api/v1/namespaces/" + encodeURIComponent(namespace) + "/pods/" + encodeURIComponent(pod) + "/exec?" + query;
    const token = btoa(this.token).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
    const socket = new WebSocket("wss://" + location.host + path, ["v5.channel.k8s.io", "base64url.bearer.authorization.k8s.io." + token]);
    socket.binaryType = "arraybuffer";
    let opened = false;
    socket.onopen = () => { opened = true; };
    const decoders = { 1: new TextDecoder(), 2: new TextDecoder() };
    socket.onmessage = (message) => {
      const bytes = new Uint8Array(message.data);
      const text = decoders[bytes[0]];
      if (text) told(text.decode(bytes.subarray(1), { stream: true }), bytes[0] === 2);
      else if (bytes[0] === 3) {
        const status = JSON.parse(new TextDecoder().decode(bytes.subarray(1)));
        if (status.status !== "Success") told("\n" + (status.message || status.reason) + "\n", true);
      }
    };
    socket.onclose = (event) => told(opened ? "\n[ended" + (event.reason ? ": " + event.reason : "") + "]\n" : "[the server did not begin it: its node does not answer, or the token may not]\n", !opened, true);
    return {
      send(text) {
        const bytes = new TextEncoder().encode(text);
        const frame = new Uint8Array(bytes.length + 1);
        frame.set(bytes, 1);
        socket.send(frame);
      },
      // The other side sees the end of its input.
      end() { if (socket.readyState === WebSocket.OPEN) socket.send(new Uint8Array([255, 0])); },
      close() { socket.close(); },
    };
  },
};

// Lines of a stream, without their ends.
async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      for (const part of parts) if (part) yield part;
    }
    if (rest) yield rest;
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Samples of a page of metrics: [{labels, value}] by name.
function samples(page) {
  const found = {};
  for (const line of page.split("\n")) {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of (match[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value;
    (found[match[1]] ||= []).push({ labels, value: Number(match[3]) });
  }
  return found;
}
