/* Numbers and promises in plain words. Bounds are rounded up, in whole numbers: they must stay bounds. */

import { ceiling, expAbove, rational, sumAbove } from "./odds.js";

/** A share in percent, with a space that does not break: 48 %, 1.5 %, 0.03 %. */
export function percent(share) {
  const points = 100 * share;
  const digits = points >= 10 || points === 0 ? 0 : points >= 1 ? 1 : Math.min(6, 1 - Math.floor(Math.log10(points)));
  return `${points >= 99.5 && share < 1 ? points.toFixed(1) : points.toFixed(digits)}\u00a0%`;
}

const ONE = 1n << 256n;

/** How far ε lets the odds of a guess move, rounded up. */
export function factor(epsilon) {
  const value = expAbove(epsilon);
  return value >= ONE * 1_000_000n ? "over a million" : String(ceiling(value, ONE, 3));
}

/** ε as people who know it write it, on one line; six digits, rounded up. */
export function cost(epsilon) {
  return `ε\u00a0=\u00a0${ceiling(...rational(epsilon), 6)}`;
}

/** The most that a belief can become, in percent, rounded up. */
export function believed(prior, epsilon) {
  return `${times(1000n, prior, epsilon) / 10}\u00a0%`;
}

/** Compute many · p e^ε / (1 − p + p e^ε), rounded up to a whole number. */
function times(many, prior, epsilon) {
  const [top, bottom] = rational(prior), held = top * expAbove(epsilon);
  const all = held + (bottom - top) * ONE;
  return Number((many * held + all - 1n) / all);
}

export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

// --- before somebody decides --------------------------------------------------------------------

/** What this is about, in a few sentences; the last is null where nobody votes.
 *
 * What a report costs is computed from the channel that it would be drawn from. Only where this browser
 * cannot take part, and sends nothing, is it what the server says.
 */
export function facts(campaign, described, device) {
  const { vote_epsilon: vote, delta } = campaign;
  const epsilon = device?.cost.epsilon ?? campaign.epsilon;
  const total = delta ? campaign.total_epsilon : sumAbove(epsilon, vote ?? 0);
  return {
    stays: described.schema.image ? "Your drawing never leaves this browser."
      : "Your answers never leave this browser.",
    sent: sent(described.schema.image, device),
    odds: delta ? `How well you are protected is said in the certificate below (${cost(epsilon)}, δ = ${delta}).`
      : "Whatever somebody guesses about you, your report changes the odds of it by a factor of at most "
        + `${factor(epsilon)}. Experts call this ${cost(epsilon)}.`,
    total: vote === null ? null
      : `Later you may vote on what was learned (${cost(vote)}). Both carry your invitation, so they can be `
        + `linked; together they count as ${cost(total)}, a factor of at most ${factor(total)}.`,
  };
}

function sent(image, device) {
  if (device?.channel) {
    const samples = image ? "sample drawings" : "groups of similar answers";
    return `Your browser looks up which of ${device.codewords} ${samples} is closest, and sends `
      + `${location.host} a random list in which it may or may not be.`;
  }
  return `${image ? "Your drawing becomes" : "Your answers become"} a few numbers, which are sent to `
    + `${location.host} with so much random noise that they could be anybody's.`;
}

/** Why nobody can take part now; undefined where they can. */
export function closed({ state, opens }) {
  const when = (text) => new Date(text).toLocaleString("en", { dateStyle: "long", timeStyle: "short" });
  return {
    early: `This collection opens on ${when(opens)}.`,
    closed: "This collection has ended. Thank you for coming.",
    full: "This collection has as many reports as it asked for. Thank you for coming.",
  }[state];
}

// --- what a report would tell -------------------------------------------------------------------

/** What leaves and how often it is true, then what somebody could conclude. */
export function conclusions(device, described) {
  const { epsilon } = device.cost;
  return [
    ...(device.channel ? ofSets : ofNoise)(device, described),
    `Whatever else is guessed about you: the report changes the odds by a factor of at most ${factor(epsilon)} `
      + `(${cost(epsilon)}). Who was 10 % sure becomes at most ${believed(0.1, epsilon)} sure.`,
  ];
}

function ofSets({ channel, codewords }, { classes, schema }) {
  const [own, other] = channel.chances, { size, categories } = channel;
  const things = classes ? `pairs of ${schema.image ? "sample" : "group"} and label` : "groups";
  const count = classes?.length ?? codewords;
  return [
    `A report names ${size} of ${categories.toLocaleString("en")} ${things}. The one that fits you is named in `
      + `${percent(own)} of all reports, each other one in ${percent(other)}.`,
    guess(channel.guess(count), count, classes ? "label" : "group"),
  ];
}

function ofNoise({ flip, cost: { epsilon } }, { classes }) {
  const noise = "All numbers that are sent have noise added.";
  if (!flip) return [noise];
  const [own, other] = flip.chances, count = classes.length;
  return [
    noise,
    `The label that is sent is yours in ${percent(own)} of all reports, and each other one in ${percent(other)}.`,
    guess(times(2n ** 52n, 1 / count, epsilon) / 2 ** 52, count, "label"),
  ];
}

const guess = (right, count, what) =>
  `Somebody who knows everything else about you, and thinks ${count === 2 ? "both" : `all ${count}`} ${what}s `
  + `equally likely, guesses yours from the report right at most ${Math.ceil(100 * right * (1 + 1e-9))} times in 100. `
  + `Without it: ${Math.round(100 / count)} times.`;

// --- used invitations ---------------------------------------------------------------------------

const ELSEWHERE = "from another browser or before this browser's data were cleared. Nothing was drawn.";
export const USED = `This invitation has been used already, ${ELSEWHERE}`;
const VOTED = `A vote has been sent with this invitation already, ${ELSEWHERE}`;

// --- votes --------------------------------------------------------------------------------------

/** How things stand with the vote, by what is kept here and what the server has of it. */
export function voteState({ vote, voteReceipt, voteWithdrawn }, model, stored) {
  if (voteWithdrawn) return "Your vote has been deleted.";
  if (voteReceipt) return "Your vote has arrived. Its receipt:";
  if (vote !== undefined) return "Your vote is drawn, and has not arrived yet.";
  if (stored !== "none") return VOTED;
  return model === null
    ? "When a model has been learned from all reports, you can try it on your own answer and vote on whether it "
      + "was right. Come back with the same link."
    : "A model has been learned from the reports. Try it on an answer of your own: whether it was right is sent "
      + "as one random vote.";
}

/** What a vote would tell, by its channel, and beside the channel of the report. */
export function voteTold({ classes }, { chances: [chance], size, categories, cost: vote }, report) {
  const { epsilon } = vote, total = vote.and(report).epsilon;
  const asked = classes === null ? "" : ", and what you said,";
  const named = size > 1 ? `it names ${size} of ${categories} answers, the true one among them` : "it is true";
  return [
    `Whether it was right${asked} is sent as a random vote: ${named} in ${percent(chance)} of all draws.`,
    `It changes the odds of any guess about you by a factor of at most ${factor(epsilon)} (${cost(epsilon)}); `
      + `together with your report, at most ${factor(total)} (${cost(total)}).`,
    `Somebody who was 50 % sure of it can become at most ${believed(0.5, epsilon)} sure.`,
  ];
}
