// From a file to the first answer: the upload, its inspection, its profiling by device type as it goes, and Try it.

import { call } from "./api.js";
import { el, setText, toast } from "./dom.js";
import { bytes, ms, percent } from "./format.js";
import { live } from "./live.js";

const application = document.body.dataset.application;
const form = document.querySelector("[data-upload]");
const drop = form.querySelector("[data-drop]");
const input = form.elements.namedItem("file");
const byId = (id) => document.getElementById(id);
const root = `/api/v1/applications/${encodeURIComponent(application)}/variants/`;
const jobs = new Map(); // device type -> its latest job, with the points that were measured
const SOON_MS = 300;
const SHOWN_KINDS = 12;
let variant = null;
let timer = null;

// --- the file ---------------------------------------------------------------------------------------------------------

function dragging(event) {
  if (![...event.dataTransfer.types].includes("Files")) return;
  event.preventDefault();
  drop.classList.toggle("over", event.type !== "dragleave");
}

function dropped(event) {
  event.preventDefault();
  drop.classList.remove("over");
  const { files } = event.dataTransfer;
  if (files.length !== 1) return toast(files.length ? "One file at a time: each variant has its own." : "That is not a file.", "bad");
  input.files = files;
  input.dispatchEvent(new Event("change", { bubbles: true }));
}

// --- the inspection ---------------------------------------------------------------------------------------------------

const tensors = (list) => list.map((one) => el("div", {}, el("code", {}, one.name), ` ${one.datatype} [${one.shape.map((size) => (size < 0 ? "*" : size)).join(", ")}]`));

function kinds(facts) {
  const found = Object.entries(facts.operators ?? {});
  const named = found.slice(0, SHOWN_KINDS).map(([kind, count]) => `${count} ${kind}`).join(", ");
  return `${facts.nodes} operators${named ? `: ${named}${found.length > SHOWN_KINDS ? " and others" : ""}` : ""}`;
}

function showInspection() {
  const facts = variant.inspection;
  const accuracy = variant.accuracy === null ? "is measured on the validation set next" : `${percent(variant.accuracy, 2)} %, ${variant.accuracy_source}`;
  const rows = [
    ["Accepted", `${variant.name}, ${bytes(variant.size_bytes)}, sha256 ${variant.digest.slice(0, 12)}…`],
    ["Accuracy", accuracy],
    ["Inputs", tensors(facts.inputs ?? [])], ["Outputs", tensors(facts.outputs ?? [])],
    ["Operators", kinds(facts)],
    ["Parameters", Number(facts.parameters ?? 0).toLocaleString("en")],
    ["Format", `opset ${facts.opset}, IR version ${facts.ir_version}${facts.producer ? `, by ${facts.producer}` : ""}`],
    ["Batches", variant.alone ? `one query at a time: ${variant.alone}` : facts.max_batch === 1 ? "one row at a time: the file fixes the batch dimension at 1" : "any number of rows"],
    ["Remarks", (facts.warnings ?? []).length ? facts.warnings.map((line) => el("div", { class: "warn" }, line)) : "none"],
  ];
  byId("inspection").replaceChildren(el("table", { class: "compact" }, el("tbody", {}, rows.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value))))));
  byId("step-inspection").hidden = false;
}

// --- the profile ------------------------------------------------------------------------------------------------------

function points(job) {
  const list = (job.points ?? []).filter((point) => !point.size);
  return list.length ? list.map((point) => `${point.batch}: ${ms(point.p95_s * 1000)}`).join(" · ") : "–";
}

function showProfile() {
  const box = byId("upload-profile");
  byId("step-profile").hidden = false;
  const badge = byId("upload-state");
  badge.className = `badge ${variant.state}`;
  setText(badge, variant.state);
  const note = variant.detail && el("p", { class: variant.state === "failed" ? "bad" : "muted" }, variant.detail);
  if (jobs.size === 0) {
    box.replaceChildren(el("p", {}, "No device has joined yet; profiling begins when one does. ", el("a", { href: "/nodes/" }, "Join a node")), ...(note ? [note] : []));
    return;
  }
  const rows = [...jobs.values()].sort((a, b) => a.device_type.localeCompare(b.device_type)).map((job) => el("tr", { "data-testid": `upload-job-${job.device_type}`, "data-state": job.state },
    el("td", {}, el("strong", {}, job.device_type)),
    el("td", {}, el("span", { class: `badge ${job.state === "done" ? "ready" : job.state === "failed" ? "failed" : "profiling"}` }, job.state), " ", el("span", { class: "small muted" }, [job.phase, job.detail].filter(Boolean).join("; "))),
    el("td", {}, el("progress", { max: 1, value: job.state === "done" ? 1 : Number(job.progress) || 0, "aria-label": `Profile on ${job.device_type}` })),
    el("td", { class: "small" }, points(job))));
  box.replaceChildren(el("table", { class: "compact" }, el("thead", {}, el("tr", {}, ["Device type", "State", "Progress", "p95 by batch"].map((name) => el("th", {}, name)))), el("tbody", {}, rows)), ...(note ? [note] : []));
}

// --- the first answer -------------------------------------------------------------------------------------------------

function showAnswer() {
  const ready = variant.state === "ready" || variant.state === "loading";
  byId("step-answer").hidden = !ready;
  if (!ready) return;
  const warm = variant.warm_on.length > 0;
  setText(byId("upload-ready"), warm
    ? `${variant.name} can run on ${variant.warm_on.join(", ")}. Send it a query.`
    : `${variant.name} is profiled. The plan holds it on no device yet: a query is answered by whichever variant is loaded.`);
  const select = document.querySelector('[data-try] select[name="variant"]');
  if (!select) return;
  let option = [...select.options].find((one) => one.value === variant.name);
  if (!option) { option = el("option", {}, variant.name); select.append(option); }
  // Until somebody chooses, the query is for the variant that was just uploaded.
  if (!select.dataset.chosen) select.value = warm ? variant.name : "";
}

// --- progress -----------------------------------------------------------------------------------------------------

async function read() {
  clearTimeout(timer);
  timer = null;
  const { name } = variant;
  try {
    const query = `application=${encodeURIComponent(application)}&variant=${encodeURIComponent(name)}`;
    const [now, { results }] = await Promise.all([call("GET", `${root}${encodeURIComponent(name)}/`), call("GET", `/api/v1/profile-jobs/?${query}`)]);
    variant = now;
    // The latest first: of several jobs on a type the first counts.
    for (const job of [...results].reverse()) jobs.set(job.device_type, { ...job, job: job.id, points: jobs.get(job.device_type)?.job === job.id ? jobs.get(job.device_type).points : [] });
    await storedPoints(query);
    show();
  } catch (problem) {
    if (problem.status === 404) setText(byId("upload-state"), "deleted");
    // Else the server is away: the badge at the top says so, and the next event reads again.
  }
}

// What was measured before this page was opened.
async function storedPoints(query) {
  const missing = [...jobs.values()].filter((job) => job.state === "done" && !job.points.length);
  if (!missing.length) return;
  const { results } = await call("GET", `/api/v1/profiles/?${query}`);
  for (const job of missing) {
    const profile = results.find((one) => one.device_type === job.device_type);
    job.points = (profile?.latencies ?? []).map((point) => ({ batch: point.batch, size: point.size, p95_s: point.p95_ms / 1000 }));
  }
}

function show() {
  showInspection();
  showProfile();
  showAnswer();
}

function soon() {
  timer ??= setTimeout(read, SOON_MS);
}

function profile(data) {
  if (variant === null || data.variant !== variant.id) return;
  const known = jobs.get(data.device_type);
  jobs.set(data.device_type, { ...known, ...data, points: data.points?.length ? data.points : known?.job === data.job ? known.points : [] });
  showProfile();
  if (!["queued", "running"].includes(data.state)) soon();
}

function begin(accepted) {
  variant = accepted;
  jobs.clear();
  history.replaceState(null, "", `?variant=${encodeURIComponent(variant.name)}`);
  show();
  read();
  byId("step-inspection").scrollIntoView({ block: "start" });
}

for (const kind of ["dragenter", "dragover", "dragleave"]) drop.addEventListener(kind, dragging);
drop.addEventListener("drop", dropped);
form.addEventListener("uploaded", (event) => begin(event.detail));
document.querySelector('[data-try] select[name="variant"]')?.addEventListener("change", (event) => { event.target.dataset.chosen = "1"; });
live
  .on("profile", profile)
  .on("changed", () => { if (variant) soon(); })
  .on("device_state", () => { if (variant) soon(); })
  .on("snapshot", () => { if (variant) soon(); });
if (document.body.dataset.variant) {
  variant = { name: document.body.dataset.variant };
  read();
}
