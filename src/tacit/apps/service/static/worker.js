/* Opens the page without a connection, from the copy that this worker made of it; keeps nothing else,
 * and sends nothing.
 *
 * With a connection, the page comes from the server. A copy is complete and of one version, whose
 * mark the server writes below: when a file changes, another worker makes another copy.
 */

const CACHE = "tacit-page VERSION", PAGE = "/static/participate.html";
const FILES = ["participate.html", "style.css", "participate.js", "answer.js", "api.js", "channels.js", "device.js",
  "dots.js", "drawing.js", "kept.js", "language.js", "ledger.js", "means.js", "odds.js", "onnx.js", "operators.js",
  "outbox.js", "page.js", "preview.js", "randomness.js", "rows.js", "sheet.js", "stores.js", "survey.js", "tensors.js",
  "words.js", "texts/ar.js", "texts/de.js", "texts/en.js", "texts/es.js", "texts/fr.js"];

async function copy() {
  const cache = await caches.open(CACHE);
  await cache.addAll(FILES.map((name) => new Request(`/static/${name}`, { cache: "no-cache" })));
  await skipWaiting();
}

async function begin() {
  const old = (await caches.keys()).filter((name) => name.startsWith("tacit-page ") && name !== CACHE);
  await Promise.all(old.map((name) => caches.delete(name)));
  await clients.claim();
}

/** Returns the file that an address is answered with; undefined for what is the server's alone, as are previews. */
function fileFor({ method, mode, url }) {
  const { origin, pathname } = new URL(url);
  if (method !== "GET" || origin !== location.origin) return undefined;
  if (mode === "navigate") return /^\/c\/[^/]+$/.test(pathname) ? PAGE : undefined;
  return pathname.startsWith("/static/") ? pathname : undefined;
}

async function answer(request, file) {
  try {
    return await fetch(request);
  } catch (error) {
    const found = await (await caches.open(CACHE)).match(file);
    if (!found) throw error;
    return found;
  }
}

addEventListener("install", (event) => event.waitUntil(copy()));
addEventListener("activate", (event) => event.waitUntil(begin()));
addEventListener("fetch", (event) => {
  const file = fileFor(event.request);
  if (file !== undefined) event.respondWith(answer(event.request, file));
});
