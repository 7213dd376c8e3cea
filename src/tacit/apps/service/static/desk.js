/* The owner's desk: a draft, its preview and opening, people over time, papers, exports. */

import { bars, reach } from "./bars.js";
import { find, make, save, say } from "./page.js";
import { groupsOf } from "./results.js";
import { timelineOf } from "./timeline.js";

const STEPS = [["draft", "Draft"], ["open", "Open"], ["closed", "Closed"]];
const GROUPS = 16;
const TEXTS = ["title", "purpose", "question"], STATED = ["organiser", "contact", "retention", "legal_basis"];
const MISSING = { organiser: "who asks", contact: "a contact", retention: "how long reports are kept", legal_basis: "the legal basis" };

/** Shows where the campaign stands, and which statements are missing; everybody may see both. */
export function showStage(campaign, owned) {
  const now = { early: "open", full: "open" }[campaign.state] ?? campaign.state;
  find("stages").replaceChildren(...STEPS.map(([name, said]) =>
    make("li", name === now ? { "aria-current": "step" } : {}, said)));
  const missing = STATED.filter((name) => campaign.about[name] === null).map((name) => MISSING[name]);
  find("missing").hidden = !owned || missing.length === 0;
  find("missing").textContent = `Not stated: ${missing.join(", ")}. The privacy notice says so.`
    + (campaign.state === "draft" ? "" : " What people are told can only be changed in a draft.");
  find("preparing").hidden = !owned || campaign.state !== "draft";
  for (const link of document.querySelectorAll("[data-page]")) link.href = `/c/${campaign.id}/${link.dataset.page}`;
}

// --- a draft --------------------------------------------------------------------------------------

/** Fills the form with what people would be told now; once, so that nothing typed is lost. */
export function fillDraft(campaign) {
  const form = find("draft-form"), at = (name) => form.elements[name];
  for (const name of TEXTS) at(name).value = campaign[name] ?? "";
  at("question").closest(".field").hidden = !campaign.labelled;
  for (const name of [...STATED, "language"]) at(name).value = campaign.about[name] ?? "";
  for (const name of ["opens", "closes"]) at(name).value = campaign[name]?.slice(0, 16) ?? "";
  for (const name of ["minimum", "quota"]) at(name).value = campaign[name] ?? "";
  find("languages").replaceChildren(...Object.entries(campaign.about.texts).map(([tag, texts]) => language(tag, texts)));
}

/** Makes the fields of one other language. */
export function language(tag = "", texts = {}) {
  const field = (name, said, value, more = {}) => make("div", { class: "field" },
    make("label", {}, said, make("input", { name, value, ...more })));
  const box = make("fieldset", { class: "language" }, make("legend", {}, "Another language"),
    field("tag", "Language (de, pt-BR)", tag, { required: true, maxlength: 20, autocapitalize: "none" }),
    field("title", "Title", texts.title ?? "", { maxlength: 200 }),
    field("purpose", "Purpose", texts.purpose ?? "", { maxlength: 2000 }),
    field("question", "Question", texts.question ?? "", { maxlength: 200 }),
    make("button", { type: "button", class: "plain", click: () => box.remove() }, "Remove this language"));
  return box;
}

/** Returns what the form says, as the server takes it. */
function changes() {
  const form = find("draft-form"), text = (name) => form.elements[name].value.trim();
  const when = (name) => (text(name) ? `${text(name)}:00Z` : null);
  const texts = {};
  for (const box of find("languages").querySelectorAll(".language")) {
    const given = TEXTS.map((name) => [name, box.querySelector(`[name=${name}]`).value.trim()]).filter(([, value]) => value);
    texts[box.querySelector("[name=tag]").value.trim()] = Object.fromEntries(given);
  }
  const stated = Object.fromEntries(STATED.map((name) => [name, text(name) || null]));
  return {
    title: text("title"), purpose: text("purpose"), question: text("question") || null,
    opens: when("opens"), closes: when("closes"),
    minimum: Number(text("minimum")), quota: text("quota") ? Number(text("quota")) : null,
    about: { ...stated, language: text("language") || "en", texts },
  };
}

export async function saveDraft(api) {
  await api.json("/draft", { body: JSON.stringify({ changes: changes() }) });
  say("The draft is saved.");
}

export async function openDraft(api) {
  await saveDraft(api);
  await api.json("/open", { body: "{}" });
  say("The campaign is open.");
}

// --- people over time -----------------------------------------------------------------------------

export async function showTimeline(api) {
  const box = find("timeline"), timeline = await api.json("/timeline");
  box.replaceChildren(...timelineOf(timeline, Math.max(box.clientWidth, 280)));
}

// --- results --------------------------------------------------------------------------------------

/** Says how many withdrew, and what that may have done to the estimates. */
export function showWithdrawn({ withdrawn }) {
  const { words, reports, votes } = withdrawn;
  find("withdrawn").hidden = reports + votes === 0 && !withdrawn.later;
  find("withdrawn").textContent = words;
}

let typical = null, chosen = 0;

/** Shows the groups of one partition, each with what sets it apart; another can be chosen. */
export async function showPartitions(api, { partitions = [] }, described, round) {
  find("partitions-box").hidden = partitions.length === 0;
  if (partitions.length === 0) return;
  if (typical?.round !== round) typical = await api.json("/groups");
  const choice = find("partition");
  choice.replaceChildren(...partitions.map(({ partition, reports }, at) => make("option", { value: at },
    `Partition ${partition + 1} (${reports.toLocaleString("en")} reports)`)));
  chosen = Math.min(chosen, partitions.length - 1);
  choice.value = chosen;
  choice.onchange = () => { chosen = Number(choice.value); draw(); };
  const draw = () => {
    const { partition, codewords } = partitions[chosen];
    const prototypes = typical.partitions?.[partition] ?? null;
    const words = groupsOf({ ...described, prototypes, codewords: codewords.length });
    const groups = codewords.map((one) => ({ ...one, name: `Group ${one.codeword + 1}${words ? `: ${words[one.codeword]}` : ""}` }))
      .sort((a, b) => b.share - a.share).slice(0, GROUPS);
    find("partition-groups").classList.toggle("described", words !== null);
    find("partition-groups").replaceChildren(...bars(groups, reach(groups)));
  };
  draw();
}

/** Shows shares with intervals that hold if some reports are forged. */
export async function showRobust(api) {
  const forged = Number(find("forged").value);
  const found = await api.json(`/robust?forged=${forged}`);
  const entries = found.shares.map(({ what, of, share, interval }) => ({ name: `${what} ${of}`, share, interval }));
  const shown = entries.slice(0, 2 * GROUPS);
  find("robust").replaceChildren(make("p", { class: "hint" }, found.words), make("div", { class: "bars" }, ...bars(shown, reach(shown))),
    ...(shown.length < entries.length ? [make("p", { class: "hint" }, "Further groups: tacit campaign robust --json.")] : []));
}

// --- papers and files -----------------------------------------------------------------------------

export async function saveResults(api, kind) {
  const types = { csv: "text/csv", parquet: "application/octet-stream", png: "image/png" };
  save(`results.${kind}`, await api.bytes(`/results.${kind}`), types[kind]);
  say(`Saved as results.${kind}.`);
}

let record = null;

/** Shows the record of processing, to be read, printed or saved; only the owner's key opens it. */
export async function showRecord(api) {
  record = await api.json("/record");
  const line = ({ name, text, missing }) => make("p", missing ? { class: "missing" } : {},
    ...(name ? [make("strong", {}, `${name}: `)] : []), missing ? make("em", {}, text) : text);
  find("record-text").replaceChildren(make("h2", { id: "record-title", tabindex: "-1" }, record.title), make("p", { class: "lead" }, record.lead),
    ...record.sections.map(({ title, lines, items }) => make("section", {}, make("h3", {}, title), ...lines.map(line),
      ...(items.length ? [make("ul", {}, ...items.map((item) => make("li", {}, item)))] : []))));
  find("record").showModal();
  find("record-title").focus();
  find("record").scrollTop = 0;
}

export const saveRecord = () => save("record.md", record.markdown, "text/markdown");
