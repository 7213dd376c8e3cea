/* What this browser keeps of one invitation: the drawn report and vote, and their receipts.
 *
 * A report is kept before it is sent: whoever asks again gets the very same bytes, and nobody draws
 * twice as long as this browser keeps its data. Where nothing is kept, the server is asked before
 * anything is drawn whether the invitation was used. The drawing or the answers themselves are never
 * kept, and the invitation only as a hash.
 */

import { sha256 } from "./device.js";

export class Kept {
  constructor(name) {
    this.name = name;
  }

  static async of(campaign, token) {
    const hash = await sha256(new TextEncoder().encode(`tacit ${campaign} ${token}`));
    return new Kept(`tacit:${campaign}:${hash.slice(0, 32)}`);
  }

  /** {report, receipt, withdrawn, vote, voteReceipt}, as far as they are there. */
  get all() {
    return JSON.parse(localStorage.getItem(this.name) ?? "{}");
  }

  /** Puts more beside what is there, while no other tab of this browser does. */
  add(more) {
    return this.#alone(() => this.#put(more));
  }

  /** Draws under this name if that may be, once, whatever other tabs do; what is there stays. */
  once(name, may, draw) {
    navigator.storage?.persist?.().catch(() => {});  // a wish: nothing waits for it
    return this.#alone(async () => {
      if (this.all[name] === undefined && (await may())) this.#put({ [name]: draw() });
    });
  }

  #alone(work) {
    if (!navigator.locks) throw new Error("This browser is too old to take part safely. Use a newer one.");
    return navigator.locks.request(this.name, work);
  }

  #put(more) {
    const text = JSON.stringify({ ...this.all, ...more });
    try {
      localStorage.setItem(this.name, text);
    } catch {
      // Below: what was not kept is not there.
    }
    if (localStorage.getItem(this.name) !== text) {
      throw new Error("This browser keeps nothing for this page, so a report could not be sent again unchanged. "
        + "Allow it to store data, or use another browser.");
    }
  }
}
