/* What this browser stores for one invitation: the drawn report and vote, and their receipts; of a
 * survey also the sheet of questions, which is drawn before they are shown.
 *
 * A report is stored before it is sent: a retry sends the same bytes, and nothing is drawn twice as
 * long as this browser keeps its data. If nothing is stored, the page asks the server whether the
 * invitation was used before it draws anything. The drawing or the answers themselves are never
 * stored, and the invitation only as a hash.
 *
 * The store is a database, whose transactions run one after another across all tabs. localStorage
 * does not do that, even under a lock: a tab may read what was there before another tab wrote.
 */

import { sha256 } from "./device.js";

const STORE = "invitations";

const storesNothing = () => new Error("This browser does not store data for this page, so it could not send your "
  + "report again unchanged. Allow it to store data, or use another browser.");

function opened() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("tacit", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(storesNothing());
  });
}

export class Kept {
  #database;

  constructor(name, database) {
    this.name = name;
    this.#database = database;
    /** {sheet, report, receipt, withdrawn, vote, voteReceipt, voteWithdrawn}, those that are stored. */
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

  /** Draws under this name at most once, if `may` allows it, whatever other tabs do. */
  once(name, may, draw) {
    navigator.storage?.persist?.().catch(() => {});  // a request to the browser; nothing waits for it
    if (!navigator.locks) throw new Error("This browser is too old to take part safely. Use a newer one.");
    return navigator.locks.request(this.name, async () => {
      await this.#change(() => null);
      if (this.all[name] !== undefined || !(await may())) return;
      await this.#change((now) => (now[name] === undefined ? { [name]: draw() } : null));
    });
  }

  /** Adds what `change` returns for what is stored, on disk, while no other tab reads or writes. */
  #change(change) {
    return new Promise((resolve, reject) => {
      const transaction = this.#database.transaction(STORE, "readwrite", { durability: "strict" });
      const store = transaction.objectStore(STORE), request = store.get(this.name);
      let now;
      request.onsuccess = () => {
        now = request.result ?? {};
        let more;
        try {
          more = change(now);
        } catch (error) {
          reject(error);
          transaction.abort();
          return;
        }
        if (more) store.put(now = { ...now, ...more }, this.name);
      };
      transaction.oncomplete = () => {
        this.all = now;
        resolve();
      };
      transaction.onabort = () => reject(storesNothing());
    });
  }
}
