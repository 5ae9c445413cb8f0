// Files as tensors: images and numpy's .npy. All in the browser; nothing is uploaded but the tensor.

const ARRAYS = { BOOL: Uint8Array, UINT8: Uint8Array, UINT16: Uint16Array, UINT32: Uint32Array, INT8: Int8Array, INT16: Int16Array, INT32: Int32Array, FP32: Float32Array, FP64: Float64Array };
const NPY = { "?": "BOOL", "b1": "BOOL", u1: "UINT8", u2: "UINT16", u4: "UINT32", u8: "UINT64", i1: "INT8", i2: "INT16", i4: "INT32", i8: "INT64", f2: "FP16", f4: "FP32", f8: "FP64" };
const MEAN = [0.485, 0.456, 0.406];
const DEVIATION = [0.229, 0.224, 0.225];

export const count = (shape) => shape.reduce((product, size) => product * size, 1);

export function base64(buffer) {
  const bytes = new Uint8Array(buffer);
  let text = "";
  // In pieces: a call takes only so many arguments.
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}

// "1, 4" as [1, 4]; throws where it does not fit the signature's shape, in which -1 is free.
export function parseShape(text, declared) {
  const sizes = text.split(/[\s,x\[\]()]+/).filter(Boolean).map(Number);
  if (sizes.some((size) => !Number.isInteger(size) || size < 0)) throw new Error(`shape: "${text}" must be whole numbers, such as 1, 4`);
  if (sizes.length !== declared.length) throw new Error(`shape: has ${sizes.length} dimensions; the signature has ${declared.length}`);
  const wrong = declared.findIndex((size, i) => size >= 0 && size !== sizes[i]);
  if (wrong >= 0) throw new Error(`shape: dimension ${wrong + 1} must be ${declared[wrong]}`);
  return sizes;
}

// Values of a text field as a V2 input has them, flat.
export function parseValues(text, datatype, shape) {
  let values;
  if (datatype === "BYTES") values = text.split("\n").filter((line, i, all) => line !== "" || i < all.length - 1);
  else {
    values = text.split(/[\s,;\[\]]+/).filter(Boolean).map((word) => {
      if (datatype === "BOOL") {
        if (!/^(true|false|0|1)$/i.test(word)) throw new Error(`values: "${word}" is neither true nor false`);
        return /^(true|1)$/i.test(word);
      }
      if (Number.isNaN(Number(word))) throw new Error(`values: "${word}" is not a number`);
      return Number(word);
    });
  }
  if (values.length !== count(shape)) throw new Error(`values: has ${values.length}; the shape ${shape.join(" × ")} needs ${count(shape)}`);
  return values;
}

// {datatype, shape, buffer} of a .npy file (NumPy's NEP 1).
export async function readNpy(file) {
  const buffer = await file.arrayBuffer();
  const view = new DataView(buffer);
  if (buffer.byteLength < 12 || new TextDecoder("latin1").decode(buffer.slice(1, 6)) !== "NUMPY") throw new Error("file: is not an .npy file");
  const long = view.getUint8(6) >= 2;
  const begin = long ? 12 : 10;
  const length = long ? view.getUint32(8, true) : view.getUint16(8, true);
  const header = new TextDecoder("latin1").decode(buffer.slice(begin, begin + length));
  const descr = /'descr':\s*'([<>|=]?)([^']+)'/.exec(header);
  const shape = /'shape':\s*\(([^)]*)\)/.exec(header);
  if (!descr || !shape) throw new Error("file: has fields or objects; a plain array is needed");
  if (/'fortran_order':\s*True/.test(header)) throw new Error("file: is in Fortran order; save it with numpy.ascontiguousarray");
  const datatype = NPY[descr[2]];
  if (!datatype || descr[1] === ">") throw new Error(`file: has elements of ${descr[1]}${descr[2]}, which cannot be sent`);
  return { datatype, shape: shape[1].split(",").map((s) => s.trim()).filter(Boolean).map(Number), buffer: buffer.slice(begin + length) };
}

// Where rows, columns and channels of an image lie in a shape; null where it is no image's.
export function imageLayout(shape) {
  const [, a, b, c] = shape;
  if (shape.length === 4 && [1, 3].includes(a)) return { channels: a, height: b > 0 ? b : 224, width: c > 0 ? c : 224, first: true };
  if (shape.length === 4 && [1, 3].includes(c)) return { channels: c, height: a > 0 ? a : 224, width: b > 0 ? b : 224, first: false };
  if (shape.length === 3 && a > 0 && b > 0) return { channels: 1, height: a, width: b, first: true };
  const side = Math.sqrt(a);
  if (shape.length === 2 && a > 1 && Number.isInteger(side)) return { channels: 1, height: side, width: side, first: true };
  return null;
}

const scaled = { unit: (v) => v / 255, byte: (v) => v, signed: (v) => v / 127.5 - 1, imagenet: (v, channel) => (v / 255 - MEAN[channel]) / DEVIATION[channel] };

// {datatype, shape, buffer} of an image file, squeezed to the input's size and drawn on the canvas.
export async function readImage(file, declared, datatype, pixels, canvas) {
  const layout = imageLayout(declared);
  if (!layout) throw new Error(`file: no image fits the shape ${declared.join(" × ")}`);
  if (!ARRAYS[datatype]) throw new Error(`file: an image cannot become ${datatype}; use .npy`);
  const image = await createImageBitmap(file).catch(() => { throw new Error("file: is not an image that this browser can read"); });
  const { channels, height, width, first } = layout;
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(image, 0, 0, width, height);
  const rgba = context.getImageData(0, 0, width, height).data;
  const values = new ARRAYS[datatype](channels * height * width);
  for (let at = 0; at < height * width; at += 1) {
    const [r, g, b] = rgba.subarray(4 * at, 4 * at + 3);
    // Rec. 601 luma, as Pillow's convert("L").
    const colours = channels === 3 ? [r, g, b] : [0.299 * r + 0.587 * g + 0.114 * b];
    colours.forEach((value, channel) => { values[first ? channel * height * width + at : at * channels + channel] = scaled[pixels](value, channel); });
  }
  const sizes = { 4: first ? [1, channels, height, width] : [1, height, width, channels], 3: [1, height, width], 2: [1, height * width] };
  return { datatype, shape: sizes[declared.length], buffer: values.buffer };
}
