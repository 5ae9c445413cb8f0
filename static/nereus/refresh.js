// Parts of server-made pages that are read again when what they show has changed. Only elements with an id and
// data-refresh="kind ..." are replaced, so that a form being filled in stays as it is.

import { keepFocus } from "./dom.js";
import { localize } from "./moments.js";

const WAIT_MS = 300;
// A page that takes long, of a large cluster, is read again less often: at most a fifth of the time.
const REST = 4;
let took = 0;
let timer = null;
let running = false;
let again = false;

// The focus stays where it was, and so do details that were opened.
function replace(part, next) {
  for (const opened of part.querySelectorAll("details[open][id]")) {
    const again = next.querySelector(`#${CSS.escape(opened.id)}`);
    if (again) again.open = true;
  }
  keepFocus(part.parentElement, () => part.replaceWith(next));
}

export async function refresh() {
  if (running) { again = true; return; }
  running = true;
  const began = performance.now();
  try {
    const response = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
    // Deleted meanwhile, or signed out: the page stays as it is and its buttons say what is wrong.
    if (!response.ok || response.redirected) return;
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    // Before they are compared: what the page shows is local already, and has what scripts fill in.
    localize(fresh);
    document.dispatchEvent(new CustomEvent("fetched", { detail: fresh }));
    // The number of repairs comes by the websocket, and is newer there than in a page.
    const live = document.getElementById("live-state")?.dataset.state === "live";
    for (const part of document.querySelectorAll("[data-refresh][id]")) {
      if (live && part.id === "repairs-count") continue;
      const next = fresh.getElementById(part.id);
      if (next && next.outerHTML !== part.outerHTML) replace(part, document.adoptNode(next));
    }
    document.dispatchEvent(new CustomEvent("refreshed"));
  } catch {
    // The server is away; the live badge says so.
  } finally {
    running = false;
    took = performance.now() - began;
    if (again) { again = false; later(); }
  }
}

function later() {
  if (timer !== null) return;
  timer = setTimeout(() => { timer = null; refresh(); }, Math.max(WAIT_MS, REST * took));
}

export function changed(kind) {
  const shown = [...document.querySelectorAll("[data-refresh]")].some((part) => part.dataset.refresh.split(" ").includes(kind));
  if (!shown) return;
  later();
}
