/* Requests to the server, with retries. */

/** A refusal by the server, with its code. */
export class Refusal extends Error {
  constructor(status, body, pause) {
    super(body.detail ?? body.title ?? `The server answered ${status}.`);
    Object.assign(this, { status, code: String(body.type ?? "").replace("tacit:", ""), body, pause });
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
        credentials: "omit", redirect: "error", referrerPolicy: "no-referrer",
      });
    } catch {
      throw new Refusal(503, { detail: "The server cannot be reached. Check the connection and try again." });
    }
    if (answer.ok) return answer;
    const pause = Number(answer.headers.get("Retry-After")) || null;
    throw new Refusal(answer.status, await answer.json().catch(() => ({})), pause);
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
      if (!error.passing) throw error;
      await wait(Math.min(error.pause ?? pause, 10));
    }
  }
  return send();
}
