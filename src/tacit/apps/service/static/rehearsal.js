/* A rehearsal: the participant's own page, unchanged, with nothing behind it.
 *
 * It runs before the page's script and takes the place of what the page would reach: requests that
 * send something are answered here and never leave, noise comes from a simulated generator, and
 * what the page stores goes to a database that is deleted when the page is left.
 */

const NAME = "tacit-rehearsal", TOKEN = "rehearsal";
const id = decodeURIComponent(location.pathname.split("/").filter(Boolean)[1]);
const base = `/v1/campaigns/${id}`;

// --- requests -----------------------------------------------------------------------------------

const server = globalThis.fetch.bind(globalThis);
const json = (content, status = 200) => new Response(JSON.stringify(content), {
  status, headers: { "Content-Type": "application/json" },
});
const ANSWERS = {
  "GET /token": () => json({ report: "none", vote: "none" }),
  "POST /reports": () => json({ receipt: "PREVIEW-NOT-A-RECEIPT" }, 201),
  "POST /votes": () => json({ receipt: "PREVIEW-NOT-A-RECEIPT" }, 201),
  "POST /withdrawals": () => json({ withdrawn: true }),
};

globalThis.fetch = async (address, options = {}) => {
  const path = new URL(address instanceof Request ? address.url : address, location.href).pathname.replace(base, "");
  const method = (options.method ?? address.method ?? "GET").toUpperCase();
  const answer = ANSWERS[`${method} ${path}`];
  if (answer) return answer();
  if (method !== "GET" || address instanceof Request) throw new TypeError("A preview sends nothing.");
  const found = await server(address, options);
  // A draft is shown as it will be once it is open.
  return path === "" && found.ok ? json({ ...await found.json(), state: "open" }) : found;
};
navigator.sendBeacon = () => false;

// --- noise: simulated, so that no draw of a preview can be taken for a report ----------------------

let state = 0x9e3779b9;
function simulated() {  // Mulberry32
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return (mixed ^ (mixed >>> 14)) & 255;
}
crypto.getRandomValues = (array) => {
  new Uint8Array(array.buffer, array.byteOffset, array.byteLength).forEach((_, at, bytes) => { bytes[at] = simulated(); });
  return array;
};

// --- storage --------------------------------------------------------------------------------------

const databases = globalThis.indexedDB, open = databases.open.bind(databases);
const connections = new Set();
databases.open = (name, version) => {
  const asked = open(NAME, version);
  asked.addEventListener("success", () => connections.add(asked.result));
  return asked;
};
databases.deleteDatabase(NAME);  // what a browser that crashed has left
addEventListener("pagehide", () => {
  for (const one of connections) one.close();
  databases.deleteDatabase(NAME);
});
Storage.prototype.setItem = () => {};
CacheStorage.prototype.open = () => Promise.reject(new TypeError("A preview keeps nothing."));
if (navigator.serviceWorker) navigator.serviceWorker.register = () => new Promise(() => {});

// --- what it says -----------------------------------------------------------------------------------

history.replaceState(null, "", `${location.pathname}#token=${TOKEN}`);
const banner = document.createElement("aside");
banner.className = "rehearsal";
banner.setAttribute("aria-label", "Preview");
banner.lang = "en";
banner.append(Object.assign(document.createElement("strong"), { textContent: "Preview. " }),
  "Nothing is sent or stored, no invitation is used, and the noise is simulated.");
document.body.prepend(banner);
