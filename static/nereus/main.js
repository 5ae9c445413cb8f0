// What every page does: show whether it is live, re-read what changed, run forms.

import { showConnection } from "./connection.js";
import { setText } from "./dom.js";
import { showRepairs, startRepairs } from "./repairs.js";
import { startForms } from "./forms.js";
import { live } from "./live.js";
import { localize } from "./moments.js";
import { changed } from "./refresh.js";
import { startScrollers } from "./scrollers.js";
import { startStrip } from "./strip.js";
import { startTasks } from "./tasks.js";

const badge = document.getElementById("live-state");
let snapshots = 0;

live
  .on("state", (state) => {
    badge.dataset.state = state;
    setText(badge, state);
    showConnection(state);
  })
  .on("changed", (data) => changed(data.kind))
  .on("plan", () => changed("plan"))
  .on("member", () => changed("member"))
  .on("device_state", () => changed("device_state"))
  .on("profile", (data) => { if (data.state !== "running") changed("profile"); })
  .on("repairs", showRepairs)
  .on("snapshot", (data) => {
    showRepairs(data.repairs);
    // After a reconnect the page may have missed any of them.
    snapshots += 1;
    if (snapshots > 1) for (const kind of ["application", "variant", "node", "plan", "api_key"]) changed(kind);
  });

localize(document);
startForms();
startRepairs(badge);
startScrollers();
startStrip();
startTasks();
// After all modules of the page have subscribed to events.
addEventListener("DOMContentLoaded", () => live.start());
