// The page's websocket: dispatches events to handlers, and reconnects.

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15000;
// Gateways report each second; a connection that is silent for longer is probed with a ping.
const SILENCE_MS = 15000;

export class Live {
  constructor(url) {
    this.url = url;
    this.handlers = new Map();
    this.wait = FIRST_WAIT_MS;
    this.socket = null;
    this.receivedAt = 0;
  }

  on(event, handler) {
    if (!this.handlers.has(event)) this.handlers.set(event, []);
    this.handlers.get(event).push(handler);
    return this;
  }

  #emit(event, data) {
    for (const name of [event, "*"]) {
      for (const handler of this.handlers.get(name) ?? []) {
        // One part of the page that cannot draw something must not stop the others.
        try { handler(data, event); } catch (error) { console.error(`live event ${event}`, error); }
      }
    }
  }

  start() {
    this.#connect();
    setInterval(() => this.#check(), 5000);
    addEventListener("online", () => this.#soon(0));
  }

  send(command) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ command }));
  }

  #connect() {
    clearTimeout(this.timer);
    this.timer = null;
    const socket = new WebSocket(this.url);
    this.socket = socket;
    this.receivedAt = performance.now();
    socket.onmessage = (message) => {
      if (socket !== this.socket) return;
      this.receivedAt = performance.now();
      let parsed;
      try { parsed = JSON.parse(message.data); } catch { return console.warn("live: not JSON"); }
      if (parsed.event === "error") { this.reason = parsed.data?.detail; return; }
      if (parsed.event === "snapshot") {
        this.wait = FIRST_WAIT_MS;
        this.#emit("state", "live");
      }
      if (parsed.event === "events") for (const { event, data } of parsed.data) this.#emit(event, data);
      else this.#emit(parsed.event, parsed.data);
    };
    socket.onclose = (close) => {
      if (socket !== this.socket) return;
      if (close.code === 4401) { this.#emit("state", "signed out"); return; }
      this.#emit("state", "reconnecting");
      this.#soon(this.wait * (0.75 + Math.random() / 2));
      this.wait = Math.min(this.wait * 2, LONGEST_WAIT_MS);
    };
  }

  #soon(ms) {
    const open = this.socket && this.socket.readyState <= WebSocket.OPEN;
    if (open && ms === 0) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#connect(), ms);
  }

  #check() {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    const silent = performance.now() - this.receivedAt;
    if (silent > 2 * SILENCE_MS) this.socket.close();
    else if (silent > SILENCE_MS) this.send("ping");
  }
}

const scheme = location.protocol === "https:" ? "wss" : "ws";
// Pages that draw them get gateways' and nodes' seconds.
export const live = new Live(`${scheme}://${location.host}/ws/console/live/${"seconds" in document.body.dataset ? "" : "?seconds=0"}`);
