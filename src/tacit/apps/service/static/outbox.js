/* What waits in this browser for the server: sent unchanged, once, when there is a connection.
 *
 * A draw needs the server's word that nothing was sent with the invitation. Without a connection it
 * is made and kept all the same, and marked: before it is sent for the first time, the server is
 * asked. If another browser was faster, it never leaves, so that no server sees two draws.
 */

import { patiently } from "./api.js";

const PATHS = { report: "/reports", vote: "/votes" };
const RECEIPTS = { report: "receipt", vote: "voteReceipt" };
const WITHDRAWN = { report: "withdrawn", vote: "voteWithdrawn" };
export const UNASKED = "unasked";

export class Outbox {
  #busy = false;

  constructor(api, kept) {
    Object.assign(this, { api, kept });
    /** The server's last answer. */
    this.used = { report: "none", vote: "none" };
  }

  /** Asks the server what was sent with the invitation. */
  async ask() {
    const { report, vote } = await patiently(() => this.api.json("/token"));
    this.used = { report, vote };
  }

  /** Returns whether nothing of this kind was sent; `UNASKED` if the server cannot be reached. */
  async may(kind) {
    try {
      await this.ask();
    } catch (error) {
      if (error.unreachable) return UNASKED;
      throw error;
    }
    return this.used[kind] === "none";
  }

  /** Whether a draw waits to be sent. */
  waits(kind) {
    const { all } = this.kept;
    return all[kind] !== undefined && !all[RECEIPTS[kind]] && !all[WITHDRAWN[kind]] && !this.overtaken(kind);
  }

  /** Whether another browser was faster, so that the draw never leaves this one. */
  overtaken(kind) {
    return Boolean(this.kept.all[`${kind}Overtaken`]);
  }

  /** Whether something is being sent. */
  get busy() {
    return this.#busy;
  }

  /** Sends what waits, byte for byte, and keeps the receipt; of two tabs, one does. */
  async send(kind) {
    this.#busy = true;
    try {
      await patiently(() => this.kept.alone(() => this.#send(kind)));
    } finally {
      this.#busy = false;
    }
  }

  async #send(kind) {
    if (!this.waits(kind)) return;
    if (this.kept.all[`${kind}Unasked`]) {
      await this.ask();
      if (this.used[kind] !== "none") {
        await this.kept.add({ [`${kind}Overtaken`]: true });
        return;
      }
      await this.kept.add({ [`${kind}Unasked`]: false });  // from now on the server may have it
    }
    const { receipt } = await this.api.json(PATHS[kind], { body: this.kept.all[kind] });
    await this.kept.add({ [RECEIPTS[kind]]: receipt });
  }
}
