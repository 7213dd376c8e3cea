/* One account for all that this browser sends to surveys on this site: the sum of ε, and a limit.
 *
 * A report or a vote is charged in the transaction that draws and stores it: neither is there without
 * the other, whatever tabs do and whenever the browser stops. The price is the ε that this page has
 * checked against the mechanism; it never depends on the answer. A site cannot see another site's
 * account: what is sent to several sites adds up beyond what is shown here.
 */

import { Told, text } from "./language.js";
import { rational, sumAbove } from "./odds.js";
import { opened, transact } from "./stores.js";
import { cost, exactly, factor } from "./words.js";

/** Four reports at ε = 2; the person may set another. */
export const LIMIT = 8;
const MOST = 700;
const NEW = { limit: LIMIT, used: 0, answers: 0 };

/** Where the account lies. */
export const ACCOUNT = { account: "everything" };

/** Returns the account after a charge; throws one sentence if that is beyond the limit. */
export function charged(account = NEW, price) {
  if (!(Number.isFinite(price) && price > 0)) throw new Told("budget-unknown");
  const used = sumAbove(account.used, price);
  if (used > account.limit) {
    throw new Told("budget-beyond", { cost: cost(price), left: exactly(left(account)), limit: exactly(account.limit) });
  }
  return { ...account, used, answers: account.answers + 1 };
}

/** Returns what is left of a limit, rounded down to six decimals. */
export function left({ limit, used }) {
  const [a, b] = rational(limit), [c, d] = rational(used);
  return Math.max(Number(((a * d - c * b) * 10n ** 6n) / (b * d)), 0) / 1e6;
}

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
    if (!(limit > 0 && limit <= MOST)) throw new Told("budget-range", { most: MOST });
    this.now = (await transact(this.#database, ACCOUNT,
      ({ account = NEW }) => ({ account: { ...account, limit } }))).account;
  }

  /** Says what is used and left, and what an answer at this price would leave. */
  told(price) {
    const { used, answers, limit } = this.now, rest = exactly(left(this.now));
    const before = used === 0 ? text("budget-nothing", { left: rest })
      : text("budget-used", { used: cost(used), count: answers, left: rest });
    if (price === null) return before;
    return `${before} ${text(sumAbove(used, price) <= limit ? "budget-next" : "budget-too-much", { cost: cost(price) })}`;
  }

  /** Says what a limit means. */
  get meaning() {
    return text("budget-meaning", { factor: factor(this.now.limit) });
  }
}
