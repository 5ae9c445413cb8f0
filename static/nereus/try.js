// Try it: a query from values or files, and its answer.

import { call } from "./api.js";
import { el, setText } from "./dom.js";
import { ms, percent } from "./format.js";
import { stages } from "./stages.js";
import { base64, count, imageLayout, parseShape, parseValues, readImage, readNpy } from "./tensors.js";

const MOST_BYTES = 2 ** 20;
const MOST_ZEROS = 4096;
const form = document.querySelector("[data-try]");
const part = (field, name) => field.querySelector(`[data-part="${name}"]`);
const declared = (field) => field.dataset.shape.split(",").filter(Boolean).map(Number);
const chosen = (field) => part(field, "file").files[0];
const isNpy = (file) => file.name.toLowerCase().endsWith(".npy");

function begin(field) {
  const shape = declared(field).map((size) => (size < 0 ? 1 : size));
  part(field, "shape").value = shape.join(", ");
  const zero = { BOOL: "false", BYTES: "text" }[field.dataset.datatype] ?? "0";
  const zeros = Array(Math.min(count(shape), MOST_ZEROS)).fill(zero);
  part(field, "values").querySelector("textarea").value = zeros.join(field.dataset.datatype === "BYTES" ? "\n" : ", ");
}

// With a file its values come from there, and the fields for values and shape are of no use.
function fileChosen(field) {
  const file = chosen(field);
  part(field, "values").hidden = Boolean(file);
  part(field, "shape").disabled = Boolean(file);
  part(field, "preview").hidden = true;
  part(field, "pixels").hidden = !file || isNpy(file) || !imageLayout(declared(field));
  setText(part(field, "file-facts"), "");
}

async function fromFile(field, file) {
  const wanted = declared(field);
  const { datatype } = field.dataset;
  const canvas = part(field, "preview");
  const image = !isNpy(file);
  const tensor = image
    ? await readImage(file, wanted, datatype, part(field, "pixels").querySelector("select").value, canvas)
    : await readNpy(file);
  if (tensor.datatype !== datatype) throw new Error(`file: has ${tensor.datatype}; the input takes ${datatype}`);
  // A single item without the dimension of the batch.
  if (tensor.shape.length === wanted.length - 1) tensor.shape.unshift(1);
  parseShape(tensor.shape.join(","), wanted);
  canvas.hidden = !image;
  setText(part(field, "file-facts"), `${file.name}: ${datatype} ${tensor.shape.join(" × ")}`);
  return { name: field.dataset.input, datatype, shape: tensor.shape, base64: base64(tensor.buffer) };
}

async function input(field) {
  try {
    const file = chosen(field);
    if (file) return await fromFile(field, file);
    const shape = parseShape(part(field, "shape").value, declared(field));
    const { datatype, input: name } = field.dataset;
    return { name, datatype, shape, data: parseValues(part(field, "values").querySelector("textarea").value, datatype, shape) };
  } catch (error) {
    throw new Error(`${field.dataset.input}: ${error.message}`);
  }
}

function parameters() {
  const found = {};
  for (const name of ["variant", "min_accuracy", "latency_ms"]) {
    const { value } = form.elements.namedItem(name);
    if (value !== "") found[name] = name === "variant" ? value : Number(value);
  }
  return found;
}

function output(one) {
  const rows = one.top.map((row, i) => {
    const most = Math.max(...row.map((entry) => Math.abs(entry.value ?? 0))) || 1;
    return el("table", { class: "compact ranked", "data-testid": `try-top-${one.name}-${i}` },
      el("caption", { class: "small muted" }, `${one.name}${one.top.length > 1 ? `, row ${i + 1}` : ""}: largest of ${one.elements / (one.shape[0] || 1)}`),
      row.map((entry) => el("tr", {}, el("td", {}, `class ${entry.index}`), el("td", {}, el("progress", { max: most, value: Math.max(0, entry.value ?? 0) })), el("td", { class: "num" }, String(entry.value === null ? "none" : Number(entry.value.toPrecision(5)))))));
  });
  const shown = one.data.map((value) => (typeof value === "number" ? Number(value.toPrecision(6)) : String(value))).join(", ");
  return [...rows, el("details", { open: rows.length === 0 }, el("summary", {}, `${one.name}: ${one.datatype} ${one.shape.join(" × ")}`),
    el("pre", { class: "code" }, one.data.length < one.elements ? `${shown}, … (${one.elements} in all)` : shown))];
}

function show(answer) {
  const { variant, accuracy, device, batch_size: batch, queue_ms: queue, network_ms: network, batch_ms: packing, model_ms: model } = answer.parameters;
  const box = document.getElementById("try-answer");
  const head = answer.error
    ? [el("h3", { class: "bad" }, `Refused with ${answer.status}`), el("p", {}, answer.error)]
    : [el("h3", {}, `${variant} answered in ${ms(queue + network + packing + model)}`),
      el("p", { class: "muted small" }, `${percent(accuracy, 2)} % accuracy · ${device} · in a batch of ${batch} · ${ms(answer.took_ms)} from the control plane and back`),
      ...stages([queue, network, packing, model])];
  box.replaceChildren(...head, ...answer.outputs.flatMap(output));
  box.hidden = false;
  setText(document.getElementById("example"), answer.curl);
  setText(document.getElementById("triton"), answer.tritonclient);
}

async function send() {
  const error = form.querySelector("[data-form-error]");
  const button = form.querySelector('button[type="submit"]');
  error.hidden = true;
  button.disabled = true;
  try {
    const inputs = await Promise.all([...form.querySelectorAll("[data-input]")].map(input));
    const body = { inputs, parameters: parameters() };
    if (JSON.stringify(body).length > MOST_BYTES) throw new Error("The query is larger than 1 MiB; send it to the gateway itself, as shown.");
    show(await call("POST", form.dataset.try, body));
  } catch (problem) {
    error.textContent = problem.message;
    error.hidden = false;
  } finally {
    button.disabled = false;
  }
}

if (form) {
  for (const field of form.querySelectorAll("[data-input]")) {
    begin(field);
    part(field, "file").addEventListener("change", () => fileChosen(field));
  }
  form.addEventListener("submit", (event) => { event.preventDefault(); send(); });
}
