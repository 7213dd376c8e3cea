/* The owner's page: live counts, estimates with intervals, the model, invitations, downloads. */

import { Api, Refusal } from "./api.js";
import { ask, offerExamples, showAnswers } from "./answers.js";
import { bars, reach } from "./bars.js";
import { bytesOf } from "./device.js";
import * as desk from "./desk.js";
import { paint } from "./drawing.js";
import { attempt, campaignId, complain, explained, find, make, save, say } from "./page.js";
import { groupsOf, largest } from "./results.js";
import { cost, factor, percent } from "./words.js";

const id = await attempt(campaignId);
const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
const EVERY = 4000, GROUPS = 16;
const STATES = { draft: "Draft", open: "Open", early: "Not yet open", closed: "Closed", full: "Full" };
let api = null, campaign = null, described = null, seen = null, timer = null, lost = false, shown = null;

// --- what everyone sees -------------------------------------------------------------------------

async function counts() {
  campaign = await new Api(id).json("");
  document.title = find("title").textContent = campaign.title;
  find("purpose").textContent = campaign.purpose;
  const wanted = campaign.quota ? ` of ${campaign.quota.toLocaleString("en")}` : "";
  find("reports").replaceChildren(campaign.reports.toLocaleString("en"), make("small", {}, wanted));
  find("votes").textContent = campaign.vote_epsilon === null ? "None" : campaign.votes.toLocaleString("en");
  find("state").textContent = STATES[campaign.state] + (campaign.round > 1 ? `, round ${campaign.round}` : "");
  find("cost").replaceChildren(cost(campaign.total_epsilon),
    make("small", {}, `changes odds by a factor of at most ${factor(campaign.total_epsilon)}`));
  if (!find("explanation").firstChild) find("explanation").append(...explained(campaign.explanation));
  find("closing").hidden = api === null || ["closed", "draft"].includes(campaign.state);
  showFiles();
  desk.showStage(campaign, api !== null);
}

/** Shows the files that there are: reports and results only above the campaign's minimum. */
function showFiles() {
  find("tables").hidden = document.querySelector("[data-file='reports.parquet']").hidden = shown === null;
  document.querySelector("[data-file=model]").hidden = campaign.model === null;
}

/** Updates counts every few seconds while the page is visible, and results when counts change. */
async function watch() {
  clearTimeout(timer);
  if (!document.hidden) {
    try {
      await counts();
      if (api !== null) await results();
      if (lost) complain("");
      lost = false;
    } catch (error) {
      complain(error.message);
      lost = true;
    }
  }
  timer = setTimeout(watch, EVERY);
}

// --- what the key opens -------------------------------------------------------------------------

async function results() {
  const state = [campaign.reports, campaign.votes, campaign.model?.sha256].join(), open = campaign.state;
  if (`${state} ${open}` === seen) return;
  try {
    const summary = await api.json("/results");
    show(summary);
    await desk.showPartitions(api, summary, described, campaign.round);
    // A busy server answers with results of a moment ago: then this page asks again. Those of a closed campaign stay.
    const current = [summary.reports, summary.votes, summary.model?.sha256].join() === state;
    if (current || open === "closed") seen = `${state} ${open}`;
  } catch (error) {
    if (!(error instanceof Refusal) || error.code !== "too-few") throw error;
    few(error.body);
    seen = `${state} ${open}`;
  }
  find("owned").hidden = false;
  find("unlock").hidden = find("key-hint").hidden = true;
  await desk.showTimeline(api);
}

function few({ reports = campaign.reports, minimum = campaign.minimum }) {
  const missing = minimum - reports;
  find("results").hidden = true;
  find("few").hidden = false;
  find("few").textContent = `Results are shown from ${plural(minimum, "report")} on: `
    + `${plural(missing, "more is", "more are")} needed.`;
}

const named = (entries, key, name = String) => entries.map((one) => ({ ...one, name: name(one[key]) }));

function show(summary) {
  shown = summary;
  showFiles();
  find("few").hidden = true;
  desk.showWithdrawn(summary);
  find("results").hidden = false;
  find("survey").hidden = summary.answers === undefined;
  if (summary.answers) {
    for (const name of ["classes", "codewords", "model"]) find(`${name}-box`).hidden = true;
    poisoning(summary.poisoning);
    forgery(summary.forgery);
    return showAnswers(summary, described.schema);
  }
  const classes = named(summary.classes, "class");
  const words = groupsOf(described);
  find("typical").hidden = words === null;
  find("codewords").classList.toggle("described", words !== null);
  find("codewords-box").classList.toggle("whole", words !== null);
  const groups = named(summary.codewords ?? [], "codeword", (at) => `Group ${at + 1}${words ? `: ${words[at]}` : ""}`)
    .map((one) => ({ ...one, picture: pictureOf(one.codeword) })).sort((a, b) => b.share - a.share);
  chart("classes", classes);
  chart("codewords", groups.slice(0, GROUPS));
  const rest = groups.slice(GROUPS);
  find("fewer").hidden = rest.length === 0;
  find("fewer").textContent = `And ${plural(rest.length, "smaller group")}.`;
  find("confidence").textContent = "Shares are unbiased estimates, so they may not add up to 100\u00a0%. "
    + `The lines are intervals, each with ${percent(summary.confidence)} confidence on its own.`;
  find("notes").replaceChildren(...(summary.notes ?? []).map((line) => make("p", {}, line)));
  model(summary);
  poisoning(summary.poisoning);
  forgery(summary.forgery);
}

/** Paints what a group looks like, if rows are pictures. */
function pictureOf(codeword) {
  const { schema, prototypes } = described;
  if (!schema.image || prototypes === null) return "";
  const values = bytesOf(prototypes).subarray(codeword * schema.width, (codeword + 1) * schema.width);
  const canvas = make("canvas", { class: "tile small", "aria-hidden": "true" });
  return paint(canvas, Array.from(values, (byte) => byte / 255), schema.image);
}

function chart(name, entries, most = reach(entries)) {
  find(`${name}-box`)?.toggleAttribute("hidden", entries.length === 0);
  find(name).replaceChildren(...bars(entries, most));
}

function model(summary) {
  const { accuracy, votes, minimum } = summary;
  const published = campaign.model;
  find("model-box").hidden = !campaign.labelled;
  const elsewhere = campaign.artifact.kind === "partitions";
  find("learn").hidden = elsewhere || votes > 0 || campaign.state === "closed" && published !== null;
  find("commands").hidden = !elsewhere;
  if (elsewhere) commands(votes);
  find("learn").textContent = published === null ? "Learn and publish" : "Learn again";
  find("model-text").textContent = modelText(published, votes, accuracy === null ? minimum : null);
  find("accuracy-box").hidden = accuracy === null;
  if (accuracy === null) return;
  const balanced = accuracy.balanced_accuracy;
  const entries = [{ ...accuracy, name: plural(accuracy.voters, "voter"), share: accuracy.accuracy }];
  if (balanced !== null) entries.push({ ...balanced, name: "Balanced", share: balanced.accuracy });
  chart("accuracy", entries, 1);
  baseline(largest(summary));
  chart("by-class", named(accuracy.by_class.map((one) => ({ ...one, share: one.accuracy })), "class"), 1);
}

/** Says what a model that looks at nothing would reach. */
function baseline(most) {
  find("baseline").hidden = most === null;
  if (most === null) return;
  const [low, high] = most.interval.map((end) => (100 * end).toFixed(1));
  find("baseline").textContent = `For comparison: always answering “${most.class}”, the largest label, would be right for `
    + `${(100 * most.share).toFixed(1)}\u00a0% of people (${low} to ${high}\u00a0%).`;
}

/** Describes the model; `minimum` is the number of votes that its accuracy waits for, or null. */
function modelText(published, votes, minimum) {
  const text = published === null ? ["A classifier can be learned from the reports and published."]
    : [`Learned from ${plural(published.reports, "report")} and published.`];
  if (published === null && campaign.state !== "closed") {
    text.push("If it is published before the campaign is closed, its readers have no other guarantee than that of a report.");
  }
  if (campaign.vote_epsilon === null) return text.join(" ");
  if (published === null) text.push("Participants can then try it and vote on it.");
  else if (votes) text.push("It cannot be replaced, because people have voted on it.");
  else text.push("Until the first vote, it can be learned again.");
  if (published !== null && minimum !== null) text.push(`Its accuracy is shown from ${plural(minimum, "vote")} on.`);
  return text.join(" ");
}

const POISON = {
  lying: "Any share (lies)",
  share: "Any share (forged)",
  class_share: "Label share (forged)",
  codeword_share: "Group share (forged)",
  accuracy: "Accuracy (forged)",
};

function poisoning(rows) {
  const columns = Object.keys(POISON).filter((name) => rows.some((row) => (row[name] ?? null) !== null));
  find("fakes-box").hidden = rows.length === 0;
  const cell = (value) => ((value ?? null) === null ? "–" : `±\u00a0${(100 * value).toFixed(value < 0.1 ? 2 : 0)}`);
  find("poison-head").replaceChildren(make("tr", {}, make("th", { scope: "col" }, "Fakes"),
    ...columns.map((name) => make("th", { scope: "col" }, POISON[name]))));
  find("poison").replaceChildren(...rows.map((row) => make("tr", {}, make("td", {}, row.fakes.toLocaleString("en")),
    ...columns.map((name) => make("td", {}, cell(row[name]))))));
}

/** Says whether the reports can all be honest. */
function forgery({ alarm, words }) {
  find("forgery").textContent = words;
  find("forgery").className = alarm ? "alarm" : "hint";
}

// --- what the owner does ------------------------------------------------------------------------

async function unlock() {
  api = new Api(id, find("key").value.trim());
  find("key").value = "";
  seen = null;
  try {
    described ??= await new Api(id).json("/device", { keep: "default" });
    if (described.kind === "survey") offerExamples(described.schema);
    await counts();
    if (campaign.state === "draft") desk.fillDraft(campaign);
    await results();
  } catch (error) {
    api = null;
    throw error;
  }
}

async function learn() {
  say("Learning…");
  const { reports } = await api.json("/model", { body: "{}" });
  say(`The model was learned from ${plural(reports, "report")} and published.`);
  await watch();
}

async function invite() {
  const count = Number(find("count").value);
  const { tokens } = await api.json("/invitations", { body: JSON.stringify({ count }) });
  const links = tokens.map((token) => `${location.origin}/c/${id}#token=${encodeURIComponent(token)}`);
  save("invitations.txt", `${links.join("\n")}\n`);
  await desk.showTimeline(api);
  say(`${plural(count, "invitation")} saved in invitations.txt, one link per line. Keep the file safe.`);
}

const FILES = { "reports.parquet": "reports.parquet", certificate: "certificate.json", model: "model.safetensors" };

/** Shows how to learn with in-house rows, which are not on this server. */
function commands(votes) {
  const rest = `${location.origin}/c/${id} --inhouse FILE --label COLUMN --inhouse-public`;
  const parts = [
    ...(votes ? [] : [`# learn and publish a model\ntacit campaign learn ${rest}`]),
    ...(campaign.state === "closed" ? [] : [`# open the next round\ntacit campaign next ${rest}`])];
  find("commands").hidden = parts.length === 0;
  find("command-lines").textContent = parts.join("\n\n");
}

/** Saves the reports of each round in a file of its own: each has a mechanism of its own. */
async function everyRound() {
  const saved = [];
  for (let round = 1; round <= campaign.round; round++) {
    try {
      save(`reports-${round}.parquet`, await api.bytes(`/reports.parquet?round=${round}`), "application/octet-stream");
      saved.push(`reports-${round}.parquet`);
    } catch (error) {
      if (error.body?.round !== round) throw error;  // a round without reports
    }
  }
  say(`Saved as ${saved.join(" and ")}.`);
}

async function download(file) {
  if (file === "reports.parquet" && campaign.round > 1) return everyRound();
  save(FILES[file], await api.bytes(`/${file}`), "application/octet-stream");
  return say(`Saved as ${FILES[file]}.`);
}

async function close() {
  await api.json("/close", { body: "{}" });
  find("closing").open = false;
  say("The campaign is closed.");
  await watch();
}

const on = (element, kind, work) => element.addEventListener(kind, async (event) => {
  event.preventDefault();
  const button = event.submitter ?? event.currentTarget;
  button.disabled = true;
  await attempt(work);
  button.disabled = false;
});

on(find("unlock"), "submit", unlock);
on(find("invite"), "submit", invite);
on(find("learn"), "click", learn);
on(find("ask"), "submit", () => ask(api, described.schema));
on(find("close"), "click", close);
on(find("hold"), "submit", () => desk.showRobust(api));
on(find("draft-form"), "submit", async () => { await desk.saveDraft(api); await watch(); });
on(find("open"), "click", async () => { await desk.openDraft(api); await watch(); });
on(find("add-language"), "click", () => find("languages").append(desk.language()));
on(find("show-record"), "click", () => desk.showRecord(api));
on(find("save-record"), "click", () => desk.saveRecord());
on(find("print-record"), "click", () => print());
on(find("hide-record"), "click", () => find("record").close());
for (const button of document.querySelectorAll("[data-table]")) {
  on(button, "click", () => desk.saveResults(api, button.dataset.table));
}
for (const button of document.querySelectorAll("[data-file]")) on(button, "click", () => download(button.dataset.file));
document.addEventListener("visibilitychange", () => { if (!document.hidden) watch(); });

watch();
