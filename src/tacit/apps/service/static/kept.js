/* What this browser keeps of one invitation: the drawn report and vote, and their receipts.
 *
 * A report is kept before it is sent: whoever asks again gets the very same bytes, and nobody draws
 * twice as long as this browser keeps its data. Where nothing is kept, the server is asked before
 * anything is drawn whether the invitation was used. The drawing or the answers themselves are never
 * kept, and the invitation only as a hash.
 *
 * It is kept in a database: its transactions come one after the other in all tabs. localStorage does
 * not do that, even under a lock: a tab may read what was there before another one wrote.
 */

import { sha256 } from "./device.js";

const STORE = "invitations";

const keepsNothing = () => new Error("This browser keeps nothing for this page, so a report could not be sent "
  + "again unchanged. Allow it to store data, or use another browser.");

function opened() {
  return new Promise((resolve, reject) => {
    const asked = indexedDB.open("tacit", 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore(STORE);
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(keepsNothing());
  });
}

export class Kept {
  #database;

  constructor(name, database) {
    this.name = name;
    this.#database = database;
    /** {report, receipt, withdrawn, vote, voteReceipt, voteWithdrawn}, as far as they are there. */
    this.all = {};
  }

  static async of(campaign, token) {
    const hash = await sha256(new TextEncoder().encode(`tacit ${campaign} ${token}`));
    const made = new Kept(`tacit:${campaign}:${hash.slice(0, 32)}`, await opened());
    await made.#change(() => null);
    return made;
  }

  /** Puts more beside what is there. */
  add(more) {
    return this.#change(() => more);
  }

  /** Draws under this name if that may be, once, whatever other tabs do; what is there stays. */
  once(name, may, draw) {
    navigator.storage?.persist?.().catch(() => {});  // a wish: nothing waits for it
    if (!navigator.locks) throw new Error("This browser is too old to take part safely. Use a newer one.");
    return navigator.locks.request(this.name, async () => {
      await this.#change(() => null);
      if (this.all[name] !== undefined || !(await may())) return;
      await this.#change((now) => (now[name] === undefined ? { [name]: draw() } : null));
    });
  }

  /** Adds what `change` makes of what is there, on the disk, while no other tab reads or writes. */
  #change(change) {
    return new Promise((resolve, reject) => {
      const transaction = this.#database.transaction(STORE, "readwrite", { durability: "strict" });
      const store = transaction.objectStore(STORE), asked = store.get(this.name);
      let now;
      asked.onsuccess = () => {
        now = asked.result ?? {};
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
      transaction.onabort = () => reject(keepsNothing());
    });
  }
}
