/* The participant's page: who asks, an answer, what would leave, consent, one report, a receipt. */

import { Answer, askable } from "./answer.js";
import { Api, patiently } from "./api.js";
import { deviceOf, mustAgree, votesOf } from "./device.js";
import { Kept } from "./kept.js";
import { attempt, campaignId, complain, explained, find, make, save, say, step } from "./page.js";
import { examples, own } from "./preview.js";
import { SystemEntropy } from "./randomness.js";
import { USED, closed, conclusions, facts, voteState, voteTold } from "./words.js";

const entropy = new SystemEntropy();
let id, campaign, described, device, api, kept, answer, taken, ballot, votes;
let voting = false;
let used = { report: "none", vote: "none" };  // as the server said last

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
  id = campaignId();
  const open = new Api(id);
  [campaign, described] = await Promise.all([open.json(""), open.json("/device", { keep: "default" })]);
  if (campaign.id !== id) throw new Error("The server describes another collection. Nothing was sent; try again later.");
  if (usable()) device = await deviceOf(described, described.encoder && (await open.bytes("/encoder")));
  mustAgree(campaign, described, device);
  describe();
  if (token === null) return arrive();
  try {
    return await use(token);
  } catch (error) {
    if (!api) arrive();  // another code can be typed in
    throw error;
  }
}

const usable = () => described.channel !== null && askable(described.schema);

/** Takes up an invitation: one form of it, or what is kept under it would not be found again. */
async function use(given) {
  const token = given.trim();
  if (!/^[\w-]{1,128}$/.test(token)) throw new Error("This is no invitation code. Copy it again, whole.");
  const found = await Kept.of(id, token), asked = new Api(id, token);
  if (found.all.report === undefined) await ask(asked);
  [api, kept] = [asked, found];
  history.replaceState({ token }, "", location.pathname);
  return arrive();
}

/** Asks the server what was sent with an invitation. */
async function ask(asked) {
  const { report, vote } = await patiently(() => asked.json("/token"));
  used = { report, vote };
}

/** Whether nothing of this kind was sent; said by the server, just before something is drawn. */
async function unused(kind) {
  await ask(api);
  return used[kind] === "none";
}

/** Wherever this person was when they left. */
function arrive() {
  const before = kept?.all ?? {};
  if (before.report !== undefined) return before.receipt || before.withdrawn ? sent() : deliver();
  if (used.report !== "none") return sent();
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
  if (campaign.question) find("question").textContent = campaign.question;
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
    make("code", {}, `tacit campaign take-part ${location.origin}/c/${id} --token YOUR-CODE --data row.csv`));
}

// --- an answer ----------------------------------------------------------------------------------

function question(title, stepText) {
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

/** Draws once from what was agreed to: while the server is asked, there is no way back.
 *
 * Whether something is drawn now; then there is nothing left of the answer.
 */
async function drawn(kind, before, release) {
  const agreed = taken;
  taken = null;
  step("asking");
  try {
    await kept.once(kind, () => unused(kind), () => JSON.stringify(release(agreed)));
  } catch (error) {
    taken = agreed;
    step(before);
    throw error;
  }
  answer.clear();
  return kept.all[kind] !== undefined;
}

async function draw() {
  const done = await drawn("report", "preview", ({ row, label }) => ({
    artifact: campaign.artifact.sha256, report: device.release(device.encode(row), label, entropy),
  }));
  return done ? deliver() : sent();
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
        ? "This invitation was used from another browser in the meantime. Nothing new was stored, but the server "
          + "has seen both reports." : error.message);
      return;
    }
    await kept.add({ withdrawn: true });
  }
  sent();
}

function exactly() {
  find("bytes").textContent = [kept.all.report, kept.all.vote].filter(Boolean).join("\n\n");
  find("exactly").hidden = !find("bytes").textContent;
}

/** What became of the report: drawn here, withdrawn, or nothing that this browser knows of. */
function outcome({ report, withdrawn }) {
  if (report === undefined) return ["Used already", USED];
  if (withdrawn) return ["Withdrawn", "Your report has been deleted. This invitation cannot be used for another one."];
  return ["Thank you", "Your report has arrived. It was drawn once, and no other is drawn for this invitation as "
    + "long as this browser keeps its data."];
}

function sent() {
  const { receipt, withdrawn, voteReceipt } = kept.all;
  step("sent");
  [find("sent-title").textContent, find("sent-text").textContent] = outcome(kept.all);
  find("resend").hidden = true;
  find("receipt-box").hidden = !receipt || Boolean(withdrawn);
  find("receipt").textContent = receipt ?? "";
  find("withdraw").hidden = !receipt || Boolean(withdrawn);
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
  const { report, vote, voteReceipt, voteWithdrawn } = kept.all;
  const voted = vote !== undefined, done = voteReceipt || voteWithdrawn || (!voted && used.vote !== "none");
  const reported = report !== undefined || used.report === "stored";
  find("vote-box").hidden = campaign.vote_epsilon === null || !(voted || reported);
  if (find("vote-box").hidden) return;
  find("vote-text").textContent = voteState(kept.all, campaign.model, used.vote);
  find("vote").hidden = Boolean(done) || campaign.model === null || !usable() || campaign.state === "closed";
  find("vote").textContent = voted ? "Send it again" : "Try the model";
  find("vote-receipt").hidden = !voteReceipt || Boolean(voteWithdrawn);
  find("vote-receipt").textContent = voteReceipt ?? "";
}

async function startVote() {
  if (kept.all.vote !== undefined) return deliverVote();
  if (!(await unused("vote"))) return sent();
  ballot = await new Api(id).json("/ballot");
  if (ballot.model !== campaign.model.sha256 || ballot.epsilon !== campaign.vote_epsilon) {
    throw new Error("The server describes two different votes. Nothing was sent; load this page again.");
  }
  if (ballot.codewords === null && ballot.network === null) {
    throw new Error("This model is too much for a browser: vote on a computer with Tacit.");
  }
  votes = votesOf(ballot);
  voting = true;
  return question("Something for the model to read", "Your vote");
}

/** The model's answer, and whether it fits the label that the person gave. */
function tryModel() {
  const said = ballot.answers[device.answer(device.encode(taken.row), ballot)];
  const truth = described.classes[taken.label], right = said === truth;
  const place = ballot.classes === null ? 0 : ballot.classes.indexOf(truth);
  if (place < 0) throw new Error("The vote has no place for this label, so nothing was sent.");
  taken.symbol = 2 * place + right;
  find("said").textContent = `The model says ${said}. You said ${truth}. It was ${right ? "right" : "wrong"}.`;
  find("vote-told").replaceChildren(...lines(voteTold(ballot, votes, device.cost)));
  find("vote-agree").checked = false;
  step("ballot");
}

async function drawVote() {
  const done = await drawn("vote", "ballot", ({ symbol }) => ({
    model: ballot.model, vote: votes.release(symbol, entropy),
  }));
  voting = false;
  return done ? deliverVote() : sent();
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

onSubmit("invitation", () => use(find("token").value));
onSubmit("consent", draw);
onSubmit("vote-consent", drawVote);
on("start", "click", () => { voting = false; question("Your answer", "Step 1 of 2"); });
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
