/* The database of this site in this browser: one transaction after another, across all tabs.
 *
 * localStorage does not do that, even under a lock: a tab may read what was there before another
 * tab wrote.
 */

import { Told } from "./language.js";

const STORES = ["invitations", "account"];

const storesNothing = () => new Told("error-storage");

export function opened() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("tacit", 2);
    request.onupgradeneeded = () => {
      const missing = STORES.filter((name) => !request.result.objectStoreNames.contains(name));
      for (const name of missing) request.result.createObjectStore(name);
    };
    request.onblocked = () => reject(new Told("error-old-tab"));
    request.onsuccess = () => {
      request.result.onversionchange = () => request.result.close();
      resolve(request.result);
    };
    request.onerror = () => reject(storesNothing());
  });
}

/** Puts what `change` returns for what is stored under these names, on disk, while no other tab reads or writes.
 *
 * `places` names one entry in each store: { store: name }. `change` gets { store: entry } and returns the entries that
 * change, all or none of which are stored. Returns all entries.
 */
export function transact(database, places, change) {
  return new Promise((resolve, reject) => {
    const names = Object.keys(places), entries = {};
    const transaction = database.transaction(names, "readwrite", { durability: "strict" });
    let waiting = names.length;
    const settle = () => {
      let changed;
      try {
        changed = change(entries);
      } catch (error) {
        reject(error);
        transaction.abort();
        return;
      }
      for (const [name, entry] of Object.entries(changed ?? {})) {
        transaction.objectStore(name).put(entries[name] = entry, places[name]);
      }
    };
    for (const name of names) {
      const request = transaction.objectStore(name).get(places[name]);
      request.onsuccess = () => {
        entries[name] = request.result;
        waiting -= 1;
        if (waiting === 0) settle();
      };
    }
    transaction.oncomplete = () => resolve(entries);
    transaction.onabort = () => reject(storesNothing());
  });
}
