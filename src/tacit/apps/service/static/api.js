/* Requests to the server, with retries. */

import { text } from "./language.js";

const PATIENCE = 60_000;  // milliseconds: a line may be dead without anybody saying so
const CACHE = "tacit-surveys";

/** A refusal by the server, with its code. */
export class Refusal extends Error {
  constructor(status, body, pause) {
    super(body.detail ?? body.title ?? text("error-answered", { status }));
    Object.assign(this, { status, code: String(body.type ?? "").replace("tacit:", ""), body, pause });
  }

  /** Whether nothing came back at all. */
  get unreachable() {
    return this.code === "unreachable";
  }

  /** Whether the same request may succeed later. */
  get passing() {
    return this.status >= 500 || this.status === 429;
  }
}

/** One campaign's interface; `secret` is a token or a key, and is sent in a header, never in a URL. */
export class Api {
  constructor(id, secret = null) {
    this.base = `/v1/campaigns/${id}`;
    this.secret = secret;
  }

  async ask(path, { body, keep = "no-store" } = {}) {
    const headers = {};
    if (this.secret !== null) headers.Authorization = `Bearer ${this.secret}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let answer;
    try {
      answer = await fetch(this.base + path, {
        method: body === undefined ? "GET" : "POST", headers, body, cache: keep,
        credentials: "omit", redirect: "error", referrerPolicy: "no-referrer", signal: AbortSignal.timeout(PATIENCE),
      });
    } catch {
      throw new Refusal(503, { type: "tacit:unreachable", detail: text("error-unreachable") });
    }
    if (answer.ok) return answer;
    const pause = Number(answer.headers.get("Retry-After")) || null;
    throw new Refusal(answer.status, await answer.json().catch(() => ({})), pause);
  }

  /** Asks for what everyone may read, and keeps a copy of it for when there is no connection. */
  async copy(path, given) {
    const address = this.base + path;
    try {
      const answer = await this.ask(path, given);
      // Only a convenience: a browser that keeps nothing goes without.
      const copied = answer.clone();
      globalThis.caches?.open(CACHE).then((cache) => cache.put(address, copied)).catch(() => {});
      return answer;
    } catch (error) {
      const found = error.unreachable ? await globalThis.caches?.match(address) : undefined;
      if (!found) throw error;
      return found;
    }
  }

  json = async (path, given) => (await this.ask(path, given)).json();
  bytes = async (path) => (await this.ask(path)).arrayBuffer();
}

const wait = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

/** Sends a request up to four times, as long as it fails for reasons that pass. */
export async function patiently(send, pauses = [1, 2, 4]) {
  for (const pause of pauses) {
    try {
      return await send();
    } catch (error) {
      if (!error.passing || (error.unreachable && navigator.onLine === false)) throw error;
      await wait(Math.min(error.pause ?? pause, 10));
    }
  }
  return send();
}
