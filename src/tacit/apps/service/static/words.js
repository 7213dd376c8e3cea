/* Numbers and promises in plain words. Bounds are rounded up with integers, so that they stay bounds. */

import { listed, moment, number, share, text } from "./language.js";
import { ceiling, expAbove, rational, sumAbove } from "./odds.js";

/** Formats a share as a percentage: 48 %, 1.5 %, 0.03 %. */
export function percent(value) {
  const points = 100 * value;
  const digits = points >= 10 || points === 0 ? 0 : points >= 1 ? 1 : Math.min(6, 1 - Math.floor(Math.log10(points)));
  return share(value, points >= 99.5 && value < 1 ? 1 : digits);
}

const ONE = 1n << 256n;

/** Returns the factor by which ε lets the odds of a guess change, rounded up. */
export const factor = (epsilon) => number(ceiling(expAbove(epsilon), ONE, 3));

/** Formats ε with six digits, rounded up, without a line break. */
export const cost = (epsilon) => exactly(ceiling(...rational(epsilon), 6));

/** Formats this very ε. */
export const exactly = (epsilon) => `ε\u00a0=\u00a0${number(epsilon)}`;

/** Returns the largest percentage that a belief can become, rounded up to a tenth. */
export function believed(prior, epsilon) {
  const thousandths = times(1000n, prior, epsilon);
  return share(thousandths / 1000, thousandths % 10 ? 1 : 0);
}

/** Computes many · p e^ε / (1 − p + p e^ε), rounded up to a whole number. */
function times(many, prior, epsilon) {
  const [top, bottom] = rational(prior), held = top * expAbove(epsilon);
  const all = held + (bottom - top) * ONE;
  return Number((many * held + all - 1n) / all);
}

/** Returns how many of 100 people, at most, can become suspects if about 10 are before a report; never fewer. */
export const suspected = (epsilon, people, before) => Math.max(times(BigInt(people), before / people, epsilon), before);

const LEVELS = [0.5, 1, 2, 4, 700];

/** Returns a word for how well ε protects. */
export function level(epsilon) {
  const at = LEVELS.findIndex((most) => epsilon <= most);
  return text(`level-${at < 0 ? LEVELS.length : at + 1}`);
}

// --- before the person decides ------------------------------------------------------------------

/** Returns what taking part means, in a few sentences; `total` is null if there are no votes.
 *
 * The cost of a report is computed from the channel that it would be drawn from. It is taken from the
 * server only if this browser cannot take part, and so sends nothing.
 */
export function facts(campaign, described, device) {
  const { vote_epsilon: vote, delta } = campaign;
  const epsilon = device?.cost.epsilon ?? campaign.epsilon;
  const total = delta ? campaign.total_epsilon : sumAbove(epsilon, vote ?? 0);
  return {
    stays: text(described.schema.image ? "fact-stays-drawing" : "fact-stays-answers"),
    chosen: text("fact-chosen"),
    limited: delta ? null : text("fact-limited", { level: level(epsilon) }),
    sent: sent(described.schema.image, device),
    odds: delta ? text("odds-delta", { cost: cost(epsilon), delta: number(delta) })
      : `${surer("surer-report", 0.1, epsilon)} ${text("odds", { factor: factor(epsilon), cost: cost(epsilon) })}`,
    total: vote === null ? null
      : text("total", { vote: cost(vote), total: cost(total), factor: factor(total) }),
  };
}

export const surer = (key, prior, epsilon) => text(key, { before: percent(prior), after: believed(prior, epsilon) });

function sent(image, device) {
  const { host } = location;
  if (device?.partitions) {
    const sentences = [text("sent-ways", { count: device.partitions, groups: device.codewords }), text("sent-picked"),
      text(device.classes > 1 ? "sent-list-choices" : "sent-list", { host })];
    return sentences.join(" ");
  }
  if (device?.channel) return text(image ? "sent-samples" : "sent-groups", { count: device.codewords, host });
  return text(image ? "sent-noise-drawing" : "sent-noise-answers", { host });
}

/** Returns who asks, until when, who gets answers, how long they are kept, and whom to ask.
 *
 * Each is the owner's own words (`given`), or else the page's (`said`).
 */
export function terms({ closes, quota, about }) {
  const { organiser, contact, retention } = about;
  return {
    organiser: { given: organiser },
    until: { said: until(closes && moment(closes), quota) },
    host: { said: location.host },
    kept: retention ? { given: retention, said: text("kept-receipt") } : { said: text("kept-default") },
    contact: contact ? { given: contact } : { said: text("contact-default") },
  };
}

function until(time, quota) {
  if (!quota) return time ?? text("until-none");
  return time ? text("until-both", { time, count: quota }) : text("until-reports", { count: quota });
}

/** Returns why nobody can take part now, or "". */
export function closed({ state, opens }) {
  return state === "open" ? "" : text(`state-${state}`, { time: opens && moment(opens) });
}

// --- what a report would reveal -----------------------------------------------------------------

/** Returns sentences on what is sent, how often it is true, and what someone could conclude from it. */
export function conclusions(device, described) {
  return [...(device.channel ? ofSets : ofNoise)(device, described), ...reveals(device.cost.epsilon)];
}

/** Says how far a report changes what others believe. */
export const reveals = (epsilon) => [
  `${text("odds-other", { factor: factor(epsilon), cost: cost(epsilon) })} ${surer("surer-report", 0.1, epsilon)}`,
];

function ofSets({ channel, codewords, partitions }, { classes, schema }) {
  const unit = schema.image ? "sample" : "group", count = classes?.length ?? codewords;
  return [
    ...(partitions > 1 ? [text("ways-say-nothing", { count: partitions })] : []),
    names(classes ? `names-${unit}s-choices` : `names-${unit}s`, channel),
    guess(classes ? "guess-choice" : `guess-${unit}`, channel.guess(count), count),
  ];
}

/** Says how many things a report names, and how often the true one is among them. */
export function names(key, { chances: [own, other], size, categories }, count = categories) {
  return text(key, { size, count, own: percent(own), other: percent(other) });
}

function ofNoise({ flip, cost: { epsilon } }, { classes }) {
  if (!flip) return [text("noise-added")];
  const [own, other] = flip.chances, count = classes.length;
  return [
    text("noise-added"),
    text("noise-choice", { own: percent(own), other: percent(other) }),
    guess("guess-choice", times(2n ** 52n, 1 / count, epsilon) / 2 ** 52, count),
  ];
}

export const guess = (key, right, count) =>
  text(key, { count, right: Math.ceil(100 * right * (1 + 1e-9)), chance: Math.round(100 / count) });

/** Lists texts of which any one may hold. */
export const either = (texts) => listed(texts, "disjunction").join("");

// --- votes --------------------------------------------------------------------------------------

/** Returns the state of the vote, from what this browser stored and what the server has. */
export function voteState({ vote, voteReceipt, voteWithdrawn, voteOvertaken }, model, stored) {
  if (voteWithdrawn) return text("vote-deleted");
  if (voteReceipt) return text("vote-arrived");
  if (vote !== undefined && !voteOvertaken) return text("vote-ready");
  if (voteOvertaken || stored !== "none") return text("vote-used");
  return text(model === null ? "vote-later" : "vote-now");
}

/** Returns what a vote would reveal, by itself and together with the report. */
export function voteTold({ classes }, { chances: [chance], size, categories, cost: vote }, report) {
  const { epsilon } = vote, total = vote.and(report).epsilon;
  const named = size > 1 ? text("vote-named", { size, count: categories, chance: percent(chance) })
    : text("vote-true", { chance: percent(chance) });
  return [
    `${text(classes === null ? "vote-about" : "vote-about-choice")} ${named}`,
    text("vote-odds", { factor: factor(epsilon), cost: cost(epsilon), both: factor(total), total: cost(total) }),
    surer("surer-vote", 0.5, epsilon),
  ];
}
