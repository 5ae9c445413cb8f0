// How many repairs need a person: the number in the navigation, and the parts of pages that show them.

import { setText } from "./dom.js";
import { changed } from "./refresh.js";

// Without its websocket a page asks for itself.
const POLL_MS = 15000;
let shown = null;

export function showRepairs(summary) {
  const badge = document.getElementById("repairs-count");
  if (!summary || !badge) return;
  const before = shown ?? { version: badge.dataset.version, count: Number(badge.textContent) };
  shown = summary;
  setText(badge, String(summary.count));
  badge.hidden = summary.count === 0;
  badge.className = `badge${summary.error ? " failed" : summary.count ? " pending" : ""}`;
  if (before.count !== summary.count) {
    const told = summary.count === 0 ? "All repairs are resolved." : `${summary.count} ${summary.count === 1 ? "repair needs" : "repairs need"} attention.`;
    setText(document.getElementById("repairs-told"), told);
  }
  if (before.version !== summary.version) changed("repairs");
}

export function startRepairs(live) {
  setInterval(() => { if (live.dataset.state !== "live") changed("repairs-count"); }, POLL_MS);
}
