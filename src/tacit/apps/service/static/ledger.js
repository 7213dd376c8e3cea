/* One account for all that this browser sends to surveys on this site: the sum of ε, and a limit.
 *
 * A report or a vote is charged in the transaction that draws and stores it: neither is there without
 * the other, whatever tabs do and whenever the browser stops. The price is the ε that this page has
 * checked against the mechanism; it never depends on the answer. A site cannot see another site's
 * account: what is sent to several sites adds up beyond what is shown here.
 */

import { rational, sumAbove } from "./odds.js";
import { opened, transact } from "./stores.js";
import { cost, factor, plural } from "./words.js";

/** Four reports at ε = 2; the person may set another. */
export const LIMIT = 8;
const MOST = 700;
const NEW = { limit: LIMIT, used: 0, answers: 0 };

/** Where the account lies. */
export const ACCOUNT = { account: "everything" };

/** Returns the account after a charge; throws one sentence if that is beyond the limit. */
export function charged(account = NEW, price) {
  if (!(Number.isFinite(price) && price > 0)) throw new Error("The cost of this answer is not known, so nothing was drawn.");
  const used = sumAbove(account.used, price);
  if (used > account.limit) throw new Error(beyond(account, price));
  return { ...account, used, answers: account.answers + 1 };
}

/** Returns what is left of a limit, rounded down to six decimals. */
export function left({ limit, used }) {
  const [a, b] = rational(limit), [c, d] = rational(used);
  return Math.max(Number(((a * d - c * b) * 10n ** 6n) / (b * d)), 0) / 1e6;
}

const beyond = (account, price) => `This answer would cost ${cost(price)}, and ε\u00a0=\u00a0${left(account)} is left of your `
  + `limit on this site, ε\u00a0=\u00a0${account.limit}. Nothing was drawn.`;

export class Account {
  #database;

  constructor(database) {
    this.#database = database;
    this.now = NEW;
  }

  static async of() {
    const made = new Account(await opened());
    await made.read();
    return made;
  }

  /** Looks again: another tab may have charged. */
  async read() {
    this.now = (await transact(this.#database, ACCOUNT, () => null)).account ?? NEW;
  }

  /** Refuses, before a question is asked, what the limit does not allow; the charge itself looks again. */
  mustAfford(price) {
    charged(this.now, price);
  }

  /** Sets another limit. */
  async set(limit) {
    if (!(limit > 0 && limit <= MOST)) throw new Error(`The limit must be above 0 and at most ${MOST}.`);
    this.now = (await transact(this.#database, ACCOUNT,
      ({ account = NEW }) => ({ account: { ...account, limit } }))).account;
  }

  /** Says what is used and left, and what an answer at this price would leave. */
  told(price) {
    const { used, answers, limit } = this.now, rest = left(this.now);
    const lines = [used === 0 ? `Used so far on this site’s surveys: nothing. Left: ε\u00a0=\u00a0${rest}.`
      : `Used so far on this site’s surveys: ${cost(used)}, by ${plural(answers, "answer")}. Left: ε\u00a0=\u00a0${rest}.`];
    if (price !== null) {
      const after = sumAbove(used, price);
      lines.push(after <= limit ? `The next answer costs ${cost(price)}.`
        : `The next answer would cost ${cost(price)}, which is more than what is left.`);
    }
    return lines.join(" ");
  }

  /** Says what a limit means. */
  get meaning() {
    return `Everything that you send up to this limit together changes the odds of any guess about you by a factor of at `
      + `most ${factor(this.now.limit)}.`;
  }
}
