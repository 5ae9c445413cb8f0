// Calls to the REST API from a signed-in page. Failures are one kind of error with a message per field.

export class Problem extends Error {
  // `errors`: [{field, detail}]; `status` 0: the server was not reached.
  constructor(status, title, errors = []) {
    super(title);
    this.status = status;
    this.errors = errors;
  }
}

const csrf = () => document.querySelector('meta[name="csrf-token"]').content;

// The Problem in a response's body: problem+json, or the best guess for anything else.
export function problemFrom(status, text) {
  let body = null;
  try { body = JSON.parse(text); } catch { /* an HTML page of a proxy, say */ }
  if (status === 413) return new Problem(status, body?.detail ?? "The file is larger than the server accepts.", body?.errors ?? []);
  if (status === 401) return new Problem(status, "You are signed out: nothing was changed. Sign in again, then repeat this.");
  if (status === 403) return new Problem(status, body?.detail ?? "This is not allowed.");
  const errors = Array.isArray(body?.errors) ? body.errors.map((e) => ({ field: String(e.field ?? ""), detail: String(e.detail ?? e) })) : [];
  return new Problem(status, body?.detail ?? body?.title ?? `The server answered ${status}.`, errors);
}

export async function call(method, url, body) {
  const headers = { "X-CSRFToken": csrf(), Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(url, { method, headers, credentials: "same-origin", body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Problem(0, "The server cannot be reached.");
  }
  const text = await response.text();
  if (!response.ok) throw problemFrom(response.status, text);
  try { return text ? JSON.parse(text) : null; } catch { return null; }
}

// fetch cannot report upload progress; XMLHttpRequest can. `progress` gets 0 to 1; `signal` stops the upload.
export function upload(method, url, form, progress, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(method, url);
    request.setRequestHeader("X-CSRFToken", csrf());
    request.setRequestHeader("Accept", "application/json");
    request.upload.onprogress = (event) => event.lengthComputable && progress(event.loaded / event.total);
    request.onerror = () => reject(new Problem(0, "The upload was interrupted: the server cannot be reached or refused the file."));
    request.onabort = () => reject(new Problem(0, "The upload was stopped. The file and the fields are as they were."));
    signal?.addEventListener("abort", () => request.abort());
    request.onload = () => {
      if (request.status >= 400) return reject(problemFrom(request.status, request.responseText));
      try { resolve(JSON.parse(request.responseText)); } catch { resolve(null); }
    };
    request.send(form);
  });
}
