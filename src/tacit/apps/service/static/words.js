/* Numbers and promises in plain words. Bounds are rounded up with integers, so that they stay bounds. */

import { ceiling, expAbove, rational, sumAbove } from "./odds.js";

/** Formats a share as a percentage with a non-breaking space: 48 %, 1.5 %, 0.03 %. */
export function percent(share) {
  const points = 100 * share;
  const digits = points >= 10 || points === 0 ? 0 : points >= 1 ? 1 : Math.min(6, 1 - Math.floor(Math.log10(points)));
  return `${points >= 99.5 && share < 1 ? points.toFixed(1) : points.toFixed(digits)}\u00a0%`;
}

const ONE = 1n << 256n;

/** Returns the factor by which ε lets the odds of a guess change, rounded up. */
export function factor(epsilon) {
  const value = expAbove(epsilon);
  return value >= ONE * 1_000_000n ? "over a million" : String(ceiling(value, ONE, 3));
}

/** Formats ε with six digits, rounded up, without a line break. */
export function cost(epsilon) {
  return `ε\u00a0=\u00a0${ceiling(...rational(epsilon), 6)}`;
}

/** Returns the largest percentage that a belief can become, rounded up. */
export function believed(prior, epsilon) {
  return `${times(1000n, prior, epsilon) / 10}\u00a0%`;
}

/** Computes many · p e^ε / (1 − p + p e^ε), rounded up to a whole number. */
function times(many, prior, epsilon) {
  const [top, bottom] = rational(prior), held = top * expAbove(epsilon);
  const all = held + (bottom - top) * ONE;
  return Number((many * held + all - 1n) / all);
}

/** Returns how many of 100 people, at most, can become suspects if about 10 are before a report; never fewer. */
export const suspected = (epsilon, people, before) => Math.max(times(BigInt(people), before / people, epsilon), before);

const LEVELS = [[0.5, "very strong"], [1, "strong"], [2, "medium"], [4, "weak"], [700, "very weak"]];

/** Returns a word for how well ε protects. */
export const level = (epsilon) => (LEVELS.find(([most]) => epsilon <= most) ?? LEVELS.at(-1))[1];

export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

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
    stays: described.schema.image ? "Your drawing stays in this browser. It is never sent."
      : "Your answers stay in this browser. They are never sent.",
    chosen: "One report is sent, chosen at random. It may or may not fit what you answered.",
    limited: delta ? null : `What it can reveal about you is limited. Protection: ${level(epsilon)}.`,
    sent: sent(described.schema.image, device),
    odds: delta ? `The certificate below says how well you are protected (${cost(epsilon)}, δ = ${delta}).`
      : `${surer(0.1, epsilon, "your report")} In other words, the report changes the odds of any guess about you by a `
        + `factor of at most ${factor(epsilon)}. Experts write this as ${cost(epsilon)}.`,
    total: vote === null ? null
      : `Later you can also vote on what was learned (${cost(vote)}). The server can see that report and vote come `
        + `from the same invitation. Together they count as ${cost(total)}, a factor of at most ${factor(total)}.`,
  };
}

export const surer = (prior, epsilon, source) => `Someone who is ${percent(prior)} sure of something about you can become at `
  + `most ${believed(prior, epsilon)} sure from ${source}.`;

function sent(image, device) {
  if (device?.partitions) {
    return `${inWays(device)} Your browser picks one of these ways at random, without looking at your answers, and `
      + `finds your group in it. It then sends the number of the way, and a list of groups${device.classes > 1
        ? " with choices" : ""} that is chosen at random, to ${location.host}. Yours may or may not be on the list.`;
  }
  if (device?.channel) {
    const samples = image ? "sample drawings" : "groups of similar answers";
    return `Your browser finds which of ${device.codewords} ${samples} is closest to yours. It then sends a list, `
      + `chosen at random, to ${location.host}. The closest one may or may not be on the list.`;
  }
  return `Your browser turns your ${image ? "drawing" : "answers"} into a few numbers, adds random noise to them, and `
    + `sends the result to ${location.host}.`;
}

/** Describes partitions. One way has nothing to be picked from. */
const inWays = ({ partitions, codewords }) => (partitions === 1 ? "There is one way"
  : `There are ${partitions} different ways`) + ` to sort answers into ${codewords} groups of similar ones.`;

const when = (text) => new Date(text).toLocaleString("en", { dateStyle: "long", timeStyle: "short" });

/** Returns until when a survey takes answers, who gets them, how long they are kept, and whom to ask. */
export function terms({ closes, quota }) {
  const ends = [...(closes ? [when(closes)] : []), ...(quota ? [`${plural(quota, "report")} have arrived`] : [])];
  return {
    until: ends.join(", or until ") || "No end is set.",
    host: location.host,
    kept: "Until the organiser deletes it. You get a receipt with which you can have it deleted.",
    contact: "Write to whoever sent you the invitation.",
  };
}

/** Returns why nobody can take part now, or undefined. */
export function closed({ state, opens }) {
  return {
    early: `This survey opens on ${when(opens)}.`,
    closed: "This survey has ended. Thank you for your interest.",
    full: "This survey already has all the reports that it asked for. Thank you for your interest.",
  }[state];
}

// --- what a report would reveal -----------------------------------------------------------------

/** Returns sentences on what is sent, how often it is true, and what someone could conclude from it. */
export function conclusions(device, described) {
  const { epsilon } = device.cost;
  return [
    ...(device.channel ? ofSets : ofNoise)(device, described),
    `The report changes the odds of any other guess about you by a factor of at most ${factor(epsilon)} `
      + `(${cost(epsilon)}). ${surer(0.1, epsilon, "it")}`,
  ];
}

function ofSets({ channel, codewords, partitions }, { classes, schema }) {
  const [own, other] = channel.chances, { size, categories } = channel;
  const unit = schema.image ? "sample" : "group";
  const things = classes ? `combinations of ${unit} and choice` : `${unit}s`;
  const count = classes?.length ?? codewords;
  return [
    ...(partitions > 1 ? [`Which of the ${partitions} ways a report is about says nothing about you: it is picked at `
      + "random, each equally often."] : []),
    `A report names ${size} of ${categories.toLocaleString("en")} ${things}. It names yours ${percent(own)} of the `
      + `time, and each other one ${percent(other)} of the time.`,
    guess(channel.guess(count), count, classes ? "choice" : unit),
  ];
}

function ofNoise({ flip, cost: { epsilon } }, { classes }) {
  const noise = "Every number that is sent has random noise added.";
  if (!flip) return [noise];
  const [own, other] = flip.chances, count = classes.length;
  return [
    noise,
    `The report names your choice ${percent(own)} of the time, and each other one ${percent(other)} of the time.`,
    guess(times(2n ** 52n, 1 / count, epsilon) / 2 ** 52, count, "choice"),
  ];
}

export const guess = (right, count, what) =>
  `Suppose that someone knows everything else about you, and thinks ${count === 2 ? "both" : `all ${count}`} ${what}s `
  + `equally likely. From the report, they guess yours correctly at most ${Math.ceil(100 * right * (1 + 1e-9))} times `
  + `in 100. Without it, they guess it ${Math.round(100 / count)} times in 100.`;

// --- used invitations ---------------------------------------------------------------------------

const ELSEWHERE = "from another browser or before this browser's data were cleared.";
export const USED = `This invitation has already been used, ${ELSEWHERE} No new report was made.`;
const VOTED = `A vote has already been sent with this invitation, ${ELSEWHERE} No new vote was made.`;

// --- votes --------------------------------------------------------------------------------------

/** Returns the state of the vote, from what this browser stored and what the server has. */
export function voteState({ vote, voteReceipt, voteWithdrawn }, model, stored) {
  if (voteWithdrawn) return "Your vote has been deleted.";
  if (voteReceipt) return "Your vote has arrived. Its receipt:";
  if (vote !== undefined) return "Your vote is ready, but has not arrived yet.";
  if (stored !== "none") return VOTED;
  return model === null
    ? "When a model has been learned from all reports, you can come back with the same link. You can then try the "
      + "model, a program that guesses the choice, and vote on whether it was right."
    : "A model has been learned from the reports: a program that guesses the choice. Try it on an answer of your own. "
      + "One vote on whether it was right, chosen at random, is then sent.";
}

/** Returns what a vote would reveal, by itself and together with the report. */
export function voteTold({ classes }, { chances: [chance], size, categories, cost: vote }, report) {
  const { epsilon } = vote, total = vote.and(report).epsilon;
  const about = classes === null ? "whether the model was right" : "what you chose, and whether the model was right";
  const named = size > 1
    ? `it names ${size} of ${categories} possible answers, and the true one is among them ${percent(chance)} of the time`
    : `it is true ${percent(chance)} of the time`;
  return [
    `Your vote says ${about}. It is chosen at random: ${named}.`,
    `It changes the odds of any guess about you by a factor of at most ${factor(epsilon)} (${cost(epsilon)}). `
      + `Together with your report, the factor is at most ${factor(total)} (${cost(total)}).`,
    surer(0.5, epsilon, "the vote alone"),
  ];
}
