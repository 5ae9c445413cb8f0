// Drawing in slices, so that keys and clicks wait for no more than one of them.

// Pieces run together for so long. Each by itself would have the browser paint after each.
const TOGETHER_MS = 10;
const waiting = new Map(); // key -> work; newer work takes the place of older work under its key
let started = false;

function piece() {
  const [key, work] = waiting.entries().next().value;
  waiting.delete(key);
  // One part of the page that cannot draw something must not stop the others.
  try { work(); } catch (error) { console.error(`drawing ${key}`, error); }
}

function next() {
  const end = performance.now() + TOGETHER_MS;
  do piece(); while (waiting.size > 0 && performance.now() < end);
  started = waiting.size > 0;
  if (started) setTimeout(next);
}

export function slice(key, work) {
  waiting.set(key, work);
  if (started) return;
  started = true;
  setTimeout(next);
}
