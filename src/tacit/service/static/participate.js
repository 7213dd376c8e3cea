/* The participant's page: who asks, an answer, what would leave, consent, one report, a receipt. */

import { Answer, askable } from "./answer.js";
import { Api, patiently } from "./api.js";
import { channelOf } from "./channels.js";
import { deviceOf, mustCost } from "./device.js";
import { Kept } from "./kept.js";
import { attempt, campaignId, complain, explained, find, make, save, say, step } from "./page.js";
import { examples, own } from "./preview.js";
import { SystemEntropy } from "./randomness.js";
import { closed, conclusions, facts, voteState, voteTold } from "./words.js";

const id = campaignId();
const entropy = new SystemEntropy();
let campaign, described, device, api, kept, answer, taken, ballot;
let voting = false;

// --- beginning ----------------------------------------------------------------------------------

function mustBeSecure() {
  if (!globalThis.isSecureContext || !globalThis.crypto?.subtle || !crypto.getRandomValues) {
    throw new Error("This page can only protect you over a secure connection: "
      + "open it with an address that begins with https.");
  }
}

/** The token comes after the # of the link, which no server sees; it does not stay in the address. */
function tokenOfLink() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token") ?? history.state?.token ?? null;
  history.replaceState(given === null ? null : { token: given }, "", location.pathname);
  return given;
}

async function begin() {
  const token = tokenOfLink();
  mustBeSecure();
  const open = new Api(id);
  [campaign, described] = await Promise.all([open.json(""), open.json("/device", { keep: "default" })]);
  if (described.artifact !== campaign.artifact.sha256 || described.epsilon > campaign.epsilon) {
    throw new Error("The server describes two different mechanisms. Nothing was sent; try again later.");
  }
  if (usable()) device = await deviceOf(described, described.encoder && (await open.bytes("/encoder")));
  describe();
  if (token !== null) await use(token);
  else await arrive();
}

const usable = () => described.channel !== null && askable(described.schema);

async function use(token) {
  api = new Api(id, token);
  kept = await Kept.of(id, token);
  history.replaceState({ token }, "", location.pathname);
  await arrive();
}

/** Wherever this person was when they left. */
async function arrive() {
  const before = kept?.all ?? {};
  if (before.report !== undefined) return before.receipt || before.withdrawn ? sent() : deliver();
  find("invitation").hidden = Boolean(api) || !usable() || campaign.state !== "open";
  find("start").hidden = !api || !usable() || campaign.state !== "open";
  step("welcome");
  say(closed(campaign) ?? "");
  return undefined;
}

const lines = (sentences) => sentences.map((line) => make("li", {}, line));

function describe() {
  document.title = find("title").textContent = campaign.title;
  find("purpose").textContent = campaign.purpose;
  for (const [name, text] of Object.entries(facts(campaign, described, device))) {
    find(`fact-${name}`).textContent = text;
    find(`fact-${name}`).hidden = text === null;
  }
  find("limits").replaceChildren(...lines(campaign.certificate.not_protected));
  find("explanation").replaceChildren(...explained(campaign.explanation));
  find("certificate").href = `/v1/campaigns/${id}/certificate`;
  find("elsewhere").hidden = usable();
  find("elsewhere").replaceChildren(
    "This collection is too much for a browser. Take part on a computer with Tacit: ",
    make("code", {}, `tacit take-part ${location.origin}/c/${id} --token YOUR-CODE --data row.csv`));
}

// --- an answer ----------------------------------------------------------------------------------

function ask(title, stepText) {
  answer ??= new Answer(described);
  answer.clear();
  find("answer-title").textContent = title;
  find("answer-step").textContent = stepText;
  step("answer");
}

function onward() {
  taken = answer.take();
  if (voting) return tryModel();
  const picture = own(described, taken);
  find("own").querySelector("canvas")?.remove();
  find("own").hidden = picture === null;
  if (picture) find("own").prepend(picture);
  find("told").replaceChildren(...lines(conclusions(device, described)));
  find("agree").checked = false;
  trials();
  return step("preview");
}

const trials = () => find("trials").replaceChildren(...examples(device, described, taken));

// --- one report ---------------------------------------------------------------------------------

/** Draws the report, once; from here on there is nothing left of the answer. */
async function draw() {
  await kept.once("report", () => JSON.stringify({
    artifact: campaign.artifact.sha256,
    report: device.release(device.encode(taken.row), taken.label, entropy),
  }));
  taken = null;
  answer.clear();
  return deliver();
}

/** Sends what is kept, byte for byte, as often as it takes. */
async function deliver() {
  step("sent");
  say("Sending…");
  find("sent-title").textContent = "Your report is ready";
  find("sent-text").textContent = "It was drawn once and is kept in this browser until the server has it.";
  find("resend").hidden = true;
  try {
    const answered = await patiently(() => api.json("/reports", { body: kept.all.report }));
    await kept.add({ receipt: answered.receipt });
  } catch (error) {
    if (error.code !== "withdrawn") {
      exactly();
      find("resend").hidden = !error.passing;
      say("");
      complain(error.code === "already-reported"
        ? "This invitation has been used already, from another browser. Nothing new was stored." : error.message);
      return;
    }
    await kept.add({ withdrawn: true });
  }
  sent();
}

function exactly() {
  find("exactly").hidden = false;
  find("bytes").textContent = [kept.all.report, kept.all.vote].filter(Boolean).join("\n\n");
}

function sent() {
  const { receipt, withdrawn, voteReceipt } = kept.all;
  step("sent");
  find("sent-title").textContent = withdrawn ? "Withdrawn" : "Thank you";
  find("sent-text").textContent = withdrawn
    ? "Your report has been deleted. This invitation cannot be used for another one."
    : "Your report has arrived. It was drawn once; this browser never draws another for this invitation.";
  find("resend").hidden = true;
  find("receipt-box").hidden = Boolean(withdrawn);
  find("receipt").textContent = receipt ?? "";
  find("withdraw").hidden = Boolean(withdrawn);
  find("withdraw-vote").hidden = !voteReceipt || Boolean(kept.all.voteWithdrawn);
  find("withdraw-box").hidden = find("withdraw").hidden && find("withdraw-vote").hidden;
  exactly();
  invite();
}

async function withdraw(receipt, mark) {
  await patiently(() => new Api(id).json("/withdrawals", { body: JSON.stringify({ receipt }) }));
  await kept.add(mark);
  sent();
  say("It has been deleted.");
}

function receiptText() {
  const { receipt, voteReceipt } = kept.all;
  const lines = [campaign.title, `${location.origin}/c/${id}`, `Receipt of the report: ${receipt}`];
  return [...lines, ...(voteReceipt ? [`Receipt of the vote: ${voteReceipt}`] : []), ""].join("\n");
}

// --- one vote -----------------------------------------------------------------------------------

/** What is said of the vote, after the report. */
function invite() {
  const { vote, voteReceipt, voteWithdrawn } = kept.all, done = Boolean(voteReceipt || voteWithdrawn);
  find("vote-box").hidden = campaign.vote_epsilon === null;
  if (campaign.vote_epsilon === null) return;
  find("vote-text").textContent = voteState(kept.all, campaign.model);
  find("vote").hidden = done || campaign.model === null || !usable() || campaign.state === "closed";
  find("vote").textContent = vote === undefined ? "Try the model" : "Send it again";
  find("vote-receipt").hidden = !voteReceipt || Boolean(voteWithdrawn);
  find("vote-receipt").textContent = voteReceipt ?? "";
}

async function startVote() {
  if (kept.all.vote !== undefined) return deliverVote();
  ballot = await new Api(id).json("/ballot");
  if (ballot.model !== campaign.model.sha256 || ballot.epsilon > campaign.vote_epsilon) {
    throw new Error("The server describes two different votes. Nothing was sent; load this page again.");
  }
  if (ballot.codewords === null && ballot.network === null) {
    throw new Error("This model is too much for a browser: vote on a computer with Tacit.");
  }
  mustCost(channelOf(ballot.channel).epsilon, ballot.epsilon);
  voting = true;
  return ask("Something for the model to read", "Your vote");
}

/** The model's answer, and whether it fits the label that the person gave. */
function tryModel() {
  const said = ballot.answers[device.answer(device.encode(taken.row), ballot)];
  const truth = described.classes[taken.label], right = said === truth;
  taken.symbol = 2 * (ballot.classes === null ? 0 : ballot.classes.indexOf(truth)) + right;
  find("said").textContent = `The model says ${said}. You said ${truth}. It was ${right ? "right" : "wrong"}.`;
  find("vote-told").replaceChildren(
    ...lines(voteTold(ballot, channelOf(ballot.channel), campaign.total_epsilon)));
  find("vote-agree").checked = false;
  step("ballot");
}

async function drawVote() {
  await kept.once("vote", () => JSON.stringify({
    model: ballot.model, vote: channelOf(ballot.channel).release(taken.symbol, entropy),
  }));
  taken = null;
  answer.clear();
  voting = false;
  return deliverVote();
}

async function deliverVote() {
  sent();
  say("Sending…");
  const answered = await patiently(() => api.json("/votes", { body: kept.all.vote }));
  await kept.add({ voteReceipt: answered.receipt });
  sent();
  say("Your vote has arrived.");
}

// --- buttons ------------------------------------------------------------------------------------

const on = (name, kind, work) => find(name).addEventListener(kind, (event) => {
  event.preventDefault();
  attempt(() => work(event));
});

/** A form is sent once: its button rests until the answer is there. */
const onSubmit = (name, work) => on(name, "submit", async ({ target }) => {
  const button = target.querySelector("[type=submit]");
  button.disabled = true;
  try {
    await work();
  } finally {
    button.disabled = false;
  }
});

onSubmit("invitation", () => use(find("token").value.trim()));
onSubmit("consent", draw);
onSubmit("vote-consent", drawVote);
on("start", "click", () => { voting = false; ask("Your answer", "Step 1 of 2"); });
on("continue", "click", onward);
on("again", "click", trials);
on("back-welcome", "click", () => (voting ? sent() : step("welcome")));
on("back-answer", "click", () => step("answer"));
on("back-vote", "click", () => step("answer"));
on("resend", "click", deliver);
on("withdraw", "click", () => withdraw(kept.all.receipt, { withdrawn: true }));
on("withdraw-vote", "click", () => withdraw(kept.all.voteReceipt, { voteWithdrawn: true }));
on("vote", "click", startVote);
on("copy", "click", async () => { await navigator.clipboard.writeText(find("receipt").textContent); say("Copied."); });
on("save", "click", () => save("receipt.txt", receiptText()));

attempt(begin);
