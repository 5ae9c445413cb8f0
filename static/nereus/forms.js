// Forms and buttons that call the REST API. Data attributes of the page name the calls.

import { call, Problem, upload } from "./api.js";
import { el, toast } from "./dom.js";
import { utc } from "./moments.js";
import { refresh } from "./refresh.js";

function clearErrors(form) {
  for (const old of form.querySelectorAll(".field .error")) old.remove();
  for (const slot of form.querySelectorAll("[data-error-for]")) slot.textContent = "";
  const box = form.querySelector("[data-form-error]");
  box.hidden = true;
  box.replaceChildren();
}

// Each error at its field where the form has it; the rest, and a headline, in the form's box.
function showErrors(form, problem) {
  const rest = [];
  for (const { field, detail } of problem.errors) {
    const name = field.split(/[.[]/)[0];
    const slot = form.querySelector(`[data-error-for="${CSS.escape(name)}"]`);
    const input = form.elements.namedItem(name);
    const label = input instanceof Element ? input.closest(".field") : null;
    if (slot) slot.textContent = `${slot.textContent} ${field}: ${detail}`.trim();
    else if (label) label.append(el("small", { class: "error", "data-testid": `error-${name}` }, detail));
    const line = field ? `${field}: ${detail}` : detail;
    if (!problem.message.includes(detail)) rest.push(line);
  }
  const box = form.querySelector("[data-form-error]");
  box.replaceChildren(el("strong", {}, problem.message));
  if (rest.length) box.append(el("ul", {}, rest.map((line) => el("li", {}, line))));
  box.hidden = false;
}

const asProblem = (error) => (error instanceof Problem ? error : new Problem(0, String(error?.message ?? error)));

function readTensors(form) {
  const signature = {};
  for (const side of form.querySelectorAll("[data-tensors]")) {
    signature[side.dataset.tensors] = [...side.querySelectorAll(".tensor")].map((row) => {
      const part = (name) => row.querySelector(`[data-part="${name}"]`).value.trim();
      const shape = part("shape").replace(/^\[|\]$/g, "").split(/[\s,]+/).filter(Boolean).map((text) => {
        if (!/^-?\d+$/.test(text)) throw new Problem(0, "The signature cannot be read.", [{ field: "signature", detail: `"${text}" in a shape must be a whole number; -1 is a free dimension` }]);
        return Number(text);
      });
      return { name: part("name"), datatype: part("datatype"), shape };
    });
  }
  return signature;
}

// "ids=0, mask=0" as values by input; what is no number goes as it is, for the server to name.
function readPadding(text) {
  const pairs = text.split(/[\s,]+/).filter(Boolean).map((pair) => {
    const at = pair.lastIndexOf("=");
    const value = Number(pair.slice(at + 1));
    return at < 0 ? [pair, null] : [pair.slice(0, at), Number.isNaN(value) ? pair.slice(at + 1) : value];
  });
  return Object.fromEntries(pairs);
}

// "camera, gate" as names; "*" as null, which stands for all.
const readNames = (text) => (text.trim() === "*" ? null : text.split(/[\s,]+/).filter(Boolean));

function untouched(input) {
  if (input.type === "checkbox") return input.checked === input.defaultChecked;
  if (input.options) return [...input.options].every((option) => option.selected === option.defaultSelected);
  return input.value === input.defaultValue;
}

// The next change starts from what was saved.
function keepAsDefaults(form) {
  for (const input of form.elements) {
    if (input.type === "checkbox") input.defaultChecked = input.checked;
    else if (input.options) for (const option of input.options) option.defaultSelected = option.selected;
    else if ("defaultValue" in input) input.defaultValue = input.value;
  }
}

// A PATCH has the touched fields alone: the others may have been changed elsewhere meanwhile, or be shown rounded.
function readForm(form) {
  const body = {};
  for (const input of form.elements) {
    if (!input.name || input.dataset.kind === "none" || (form.dataset.method === "PATCH" && untouched(input))) continue;
    if (input.type === "checkbox") body[input.name] = input.checked;
    else if (input.dataset.kind === "number") { if (input.value !== "") body[input.name] = Number(input.value); }
    else if (input.dataset.kind === "number-or-none") body[input.name] = input.value === "" ? null : Number(input.value);
    else if (input.dataset.kind === "time-or-none") body[input.name] = input.value === "" ? null : utc(input.value);
    else if (input.dataset.kind === "several") body[input.name] = [...input.selectedOptions].map((option) => option.value);
    else if (input.dataset.kind === "names") body[input.name] = readNames(input.value);
    else if (input.dataset.kind === "sizes") body[input.name] = input.value.split(/[\s,]+/).filter(Boolean).map(Number);
    else if (input.dataset.kind === "padding") body[input.name] = readPadding(input.value);
    else body[input.name] = input.value;
  }
  if (form.querySelector("[data-signature]")) body.signature = readTensors(form);
  return body;
}

function showSecret(form, answer) {
  const shown = form.querySelector("[data-secret-shown]");
  const code = shown.querySelector("[data-template]");
  code.textContent = code.dataset.template.replaceAll("{secret}", () => answer?.[form.dataset.secret] ?? "");
  shown.hidden = false;
}

async function submitJson(form) {
  clearErrors(form);
  const buttons = form.querySelectorAll('button[type="submit"]');
  buttons.forEach((button) => { button.disabled = true; });
  try {
    const body = readForm(form);
    const answer = await call(form.dataset.method, form.dataset.api, body);
    if (form.dataset.secret) { showSecret(form, answer); form.reset(); } else keepAsDefaults(form);
    if (form.dataset.toast) toast(form.dataset.toast);
    if (form.dataset.done) location.assign(form.dataset.done.replace("{name}", encodeURIComponent(body.name ?? "")));
    else refresh();
  } catch (error) {
    showErrors(form, asProblem(error));
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
}

async function submitUpload(form) {
  clearErrors(form);
  const bar = form.querySelector("[data-progress]");
  const status = form.querySelector("[data-status]");
  const button = form.querySelector('button[type="submit"]');
  const stop = form.querySelector("[data-stop]");
  const stopped = new AbortController();
  const data = new FormData(form);
  for (const [name, value] of [...data.entries()]) if (value === "" || value.name === "") data.delete(name);
  const file = data.get("file");
  const limit = Number(form.dataset.maxMb);
  button.disabled = true;
  try {
    if (file && file.size > limit * 1024 * 1024) {
      throw new Problem(0, "The file is too large.", [{ field: "file", detail: `is ${(file.size / 1048576).toFixed(1)} MiB; at most ${limit} MiB are accepted` }]);
    }
    bar.hidden = false;
    bar.value = 0;
    status.textContent = "uploading…";
    if (stop) { stop.hidden = false; stop.onclick = () => stopped.abort(); }
    const accepted = await upload(form.dataset.method ?? "POST", form.dataset.upload, data, (done) => {
      bar.value = done;
      status.textContent = done >= 1 ? "inspecting…" : `uploading, ${Math.floor(done * 100)} %`;
    }, stopped.signal);
    status.textContent = "accepted";
    form.reset();
    form.dispatchEvent(new CustomEvent("uploaded", { detail: accepted }));
    refresh();
  } catch (error) {
    status.textContent = "";
    showErrors(form, asProblem(error));
  } finally {
    bar.hidden = true;
    if (stop) stop.hidden = true;
    button.disabled = false;
  }
}

async function press(button) {
  if (button.dataset.confirm && !confirm(button.dataset.confirm)) return;
  button.disabled = true;
  try {
    const answer = await call(button.dataset.method, button.dataset.call, button.dataset.body && JSON.parse(button.dataset.body));
    if (answer?.error && "tells" in button.dataset) toast(answer.error, "bad", 12);
    else if (button.dataset.toast) toast(button.dataset.toast);
    if (button.dataset.done) location.assign(button.dataset.done);
    else refresh();
  } catch (error) {
    const problem = asProblem(error);
    const more = problem.errors.filter((e) => !problem.message.includes(e.detail)).map((e) => (e.field ? `${e.field}: ${e.detail}` : e.detail));
    toast([problem.message, ...more].join(" "), "bad", 12);
  } finally {
    button.disabled = false;
  }
}

async function copy(button) {
  const text = document.getElementById(button.dataset.copy).textContent;
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch {
    // Without TLS browsers keep the clipboard closed; selecting is the next best.
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    toast("Selected: press Ctrl-C", "info");
  }
}

function fileChosen(input) {
  const name = input.form.elements.namedItem("name");
  if (!name || name.value || !input.files.length) return;
  name.value = input.files[0].name.replace(/\.[^.]*$/, "").replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[^A-Za-z0-9]+/, "").slice(0, 63);
}

// What a form adds to the address: local times as moments, and nothing for what was left empty.
function addressed(event) {
  if (event.target.method !== "get") return;
  for (const field of event.target.elements) {
    if (!field.name) continue;
    if (!field.value) event.formData.delete(field.name);
    else if (field.dataset.kind === "time-or-none") event.formData.set(field.name, utc(field.value));
  }
}

export function startForms() {
  for (const box of document.querySelectorAll("[data-form-error]")) box.setAttribute("role", "alert");
  for (const box of document.querySelectorAll("[data-secret-shown], [data-status]")) box.setAttribute("role", "status");
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.api) { event.preventDefault(); submitJson(form); }
    else if (form.dataset.upload) { event.preventDefault(); submitUpload(form); }
  });
  document.addEventListener("formdata", addressed);
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.call) press(button);
    else if (button.dataset.copy) copy(button);
    else if ("add" in button.dataset) {
      const row = button.parentElement.querySelector(".tensor");
      const added = row.cloneNode(true);
      for (const input of added.querySelectorAll("input")) input.value = "";
      button.before(added);
    } else if ("remove" in button.dataset) {
      const rows = button.closest("[data-tensors]").querySelectorAll(".tensor");
      if (rows.length > 1) button.closest(".tensor").remove();
    }
  });
  document.addEventListener("change", (event) => { if (event.target.type === "file") fileChosen(event.target); });
}
