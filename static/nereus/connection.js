// A page whose figures have stopped says so, since when, and what to do.

import { el } from "./dom.js";
import { clock } from "./format.js";

// A web process that restarts is back sooner.
const PATIENCE_MS = 4000;
let lost = null;
let timer = null;

function tell(...parts) {
  const box = document.getElementById("connection");
  box.replaceChildren(...parts);
  box.hidden = parts.length === 0;
}

const signIn = () => el("a", { href: `/login/?next=${encodeURIComponent(location.pathname + location.search)}`, "data-testid": "sign-in-again" }, "Sign in again");

// `state`: live, reconnecting or signed out.
export function showConnection(state) {
  clearTimeout(timer);
  if (state === "live") { lost = null; tell(); return; }
  lost ??= Date.now() / 1000;
  if (state === "signed out") tell(el("strong", {}, "You are signed out."), ` This page has not updated since ${clock(lost)}. `, signIn());
  else timer = setTimeout(() => tell(el("strong", {}, "The console cannot be reached"), ` since ${clock(lost)}: figures here are older. Retrying automatically. Devices keep serving.`), PATIENCE_MS);
}
