/* What this browser stores for one invitation: the drawn report and vote, and their receipts; of a
 * survey also the sheet of questions, which is drawn before they are shown.
 *
 * A report is stored before it is sent: a retry sends the same bytes, and nothing is drawn twice as
 * long as this browser keeps its data. If nothing is stored, the page asks the server whether the
 * invitation was used before it draws anything. The drawing or the answers themselves are never
 * stored, and the invitation only as a hash.
 *
 * A draw is charged to the site's account (ledger.js) in the same transaction.
 */

import { sha256 } from "./device.js";
import { Told } from "./language.js";
import { ACCOUNT, charged } from "./ledger.js";
import { UNASKED } from "./outbox.js";
import { opened, transact } from "./stores.js";

export class Kept {
  #database;

  constructor(name, database) {
    this.name = name;
    this.#database = database;
    /** {sheet, report, receipt, withdrawn, vote, voteReceipt, voteWithdrawn}, those that are stored, and the
     * marks of outbox.js on a report or vote. */
    this.all = {};
  }

  static async of(campaign, token) {
    const hash = await sha256(new TextEncoder().encode(`tacit ${campaign} ${token}`));
    const made = new Kept(`tacit:${campaign}:${hash.slice(0, 32)}`, await opened());
    await made.#change(() => null);
    return made;
  }

  /** Adds to what is stored. */
  add(more) {
    return this.#change(() => more);
  }

  /** Works while no other tab does, on what is stored now. */
  alone(work) {
    return navigator.locks.request(`${this.name} sending`, async () => {
      await this.#change(() => null);
      return work();
    });
  }

  /** Draws under this name at most once, if `may` allows it, whatever other tabs do, and charges this price; null is free.
   *
   * What was drawn although the server could not be asked is marked as such, in the same transaction.
   */
  once(name, may, draw, price) {
    navigator.storage?.persist?.().catch(() => {});  // a request to the browser; nothing waits for it
    if (!navigator.locks) throw new Told("error-old-browser");
    return navigator.locks.request(this.name, async () => {
      await this.#change(() => null);
      if (this.all[name] !== undefined) return;
      const allowed = await may();
      if (!allowed) return;
      const mark = allowed === UNASKED ? { [`${name}Unasked`]: true } : {};
      const places = { invitations: this.name, ...ACCOUNT };
      const stored = await transact(this.#database, places, ({ invitations: now = {}, account }) => {
        if (now[name] !== undefined) return null;
        const paid = price === null ? {} : { account: charged(account, price) };  // before the draw
        return { ...paid, invitations: { ...now, [name]: draw(), ...mark } };
      });
      this.all = stored.invitations;
    });
  }

  /** Adds what `change` returns for what is stored. */
  async #change(change) {
    const stored = await transact(this.#database, { invitations: this.name }, ({ invitations: now = {} }) => {
      const more = change(now);
      return more ? { invitations: { ...now, ...more } } : null;
    });
    this.all = stored.invitations ?? {};
  }
}
