/* The participant's page: who asks, an answer, what would be sent, consent, one report, a receipt. */

import { Answer, askable } from "./answer.js";
import { Api, patiently } from "./api.js";
import { deviceOf, modelOf, mustAgree, votesOf } from "./device.js";
import { dots } from "./dots.js";
import { Kept } from "./kept.js";
import { Account } from "./ledger.js";
import { attempt, campaignId, complain, explained, find, make, save, say, step } from "./page.js";
import { examples, inFull, mismatch, own } from "./preview.js";
import { SystemEntropy } from "./randomness.js";
import { Sheet, exampleOf, promises, reportOf } from "./sheet.js";
import { USED, closed, conclusions, facts, terms, voteState, voteTold } from "./words.js";

const entropy = new SystemEntropy();
let id, campaign, described, device, api, kept, answer, taken, ballot, votes, model, account;
let voting = false, unfit = false;  // unfit: a browser cannot run the model
let used = { report: "none", vote: "none" };  // the server's last answer

// --- beginning ----------------------------------------------------------------------------------

function mustBeSecure() {
  if (!globalThis.isSecureContext || !globalThis.crypto?.subtle || !crypto.getRandomValues) {
    throw new Error("This page can protect you only over a secure connection. "
      + "Open it with an address that begins with https.");
  }
}

/** Takes the token from after the # of the link, which no server sees, and removes it from the address. */
function tokenOfLink() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token") ?? history.state?.token ?? null;
  history.scrollRestoration = "manual";
  history.replaceState(given === null ? null : { token: given }, "", location.pathname);
  return given;
}

async function begin() {
  const token = tokenOfLink();
  mustBeSecure();
  id = campaignId();
  const open = new Api(id);
  campaign = await open.json("");
  if (campaign.id !== id) throw new Error("The server describes another survey. Nothing was sent. Try again later.");
  // The round is named, because the next one may begin between two requests.
  const round = `?round=${Number(campaign.round)}`;
  described = await open.json(`/device${round}`, { keep: "default" });
  if (usable()) device = await deviceOf(described, described.encoder && (await open.bytes(`/encoder${round}`)));
  mustAgree(campaign, described, device);
  describe();
  account = await Account.of();
  if (token === null) return arrive();
  try {
    return await use(token);
  } catch (error) {
    if (!api) arrive();  // the person can type another code
    throw error;
  }
}

/** Returns what to type on a computer on which Tacit is installed. */
const command = (more = "") => make("code", {},
  `tacit campaign take-part ${location.origin}/c/${id} --token YOUR-CODE --data row.csv ${more}`.trim());

const usable = () => described.channel !== null && askable(described.schema);

/** Starts with an invitation code, trimmed so that what this browser stored under it is found again. */
async function use(given) {
  const token = given.trim();
  if (!/^[\w-]{1,128}$/.test(token)) {
    throw new Error("This is not an invitation code. Copy the whole code and try again.");
  }
  const stored = await Kept.of(id, token), opened = new Api(id, token);
  if (stored.all.report === undefined) await ask(opened);
  [api, kept] = [opened, stored];
  history.replaceState({ token }, "", location.pathname);
  return arrive();
}

/** Asks the server what was sent with an invitation. */
async function ask(opened) {
  const { report, vote } = await patiently(() => opened.json("/token"));
  used = { report, vote };
}

/** Asks the server, just before a draw, whether nothing of this kind was sent. */
async function unused(kind) {
  await ask(api);
  return used[kind] === "none";
}

/** Shows the step where this person left off. */
function arrive() {
  const before = kept?.all ?? {};
  if (before.report !== undefined) return before.receipt || before.withdrawn ? sent() : deliver();
  if (used.report !== "none") return sent();
  find("invitation").hidden = Boolean(api) || !usable() || campaign.state !== "open";
  find("start").hidden = !api || !usable() || campaign.state !== "open";
  step("welcome");
  say(closed(campaign) ?? "");
  budget();
  return undefined;
}

/** Shows the account of this site, and the price of the next answer if there can be one. */
function budget() {
  find("budget").hidden = false;
  find("budget-text").textContent = account.told(nextPrice());
  find("budget-meaning").textContent = account.meaning;
  find("limit").value = account.now.limit;
}

function nextPrice() {
  if (document.body.dataset.step === "welcome") return find("start").hidden ? null : described.epsilon;
  return find("vote").hidden || kept.all.vote !== undefined ? null : campaign.vote_epsilon;
}

function start() {
  account.mustAfford(described.epsilon);
  if (device.sheets) return startSurvey();
  voting = false;
  return question("Your answer", "Step 1 of 2");
}

async function setLimit() {
  await account.set(Number(find("limit").value));
  budget();
  say("Your limit is set.");
}

const lines = (sentences) => sentences.map((line) => make("li", {}, line));

function describe() {
  document.title = find("title").textContent = campaign.title;
  find("purpose").textContent = campaign.purpose;
  if (campaign.question) find("question").textContent = campaign.question;
  else if (described.schema.image) find("question").textContent = "Which one did you draw?";
  const said = { ...facts(campaign, described, device), ...(device?.sheets ? promises(device) : {}) };
  for (const [name, text] of Object.entries(said)) {
    find(`fact-${name}`).textContent = text;
    find(`fact-${name}`).hidden = text === null;
  }
  for (const [name, text] of Object.entries(terms(campaign))) find(`term-${name}`).textContent = text;
  if (!campaign.delta) for (const place of ["risk", "risk-again"]) find(place).replaceChildren(dots(described.epsilon));
  for (const list of ["limits", "limits-again"]) find(list).replaceChildren(...lines(campaign.certificate.not_protected));
  find("explanation").replaceChildren(...explained(campaign.explanation));
  find("certificate").href = `/v1/campaigns/${id}/certificate?round=${Number(campaign.round)}`;
  find("elsewhere").hidden = usable();
  find("elsewhere").replaceChildren(
    "A browser cannot take part in this survey. Use a computer on which Tacit is installed: ", command());
}

// --- an answer ----------------------------------------------------------------------------------

function question(title, stepText) {
  answer ??= new Answer(described);
  find("answer-title").textContent = title;
  find("answer-step").textContent = stepText;
  step("answer", { forward: true, vote: voting });
}

/** Draws the sheet of questions once, before anything is asked, and keeps it: answers cannot choose it. */
async function startSurvey() {
  await kept.once("sheet", () => unused("report"), () => device.assign(entropy), null);
  const { sheet } = kept.all;
  if (sheet === undefined) return sent();
  answer ??= new Sheet(device, sheet);
  find("answer-title").textContent = "Your answers";
  return step("answer", { forward: true });
}

function onward(forward = true) {
  taken = answer.take();
  if (taken === null) return undefined;  // the form says what is missing, and where
  if (voting) return tryModel(forward);
  find("own-answers").replaceChildren(...answer.own());
  find("answers-stay").hidden = !find("own-answers").firstChild;
  const picture = own(described, taken);
  find("own").querySelector("canvas")?.remove();
  find("own").hidden = picture === null;
  if (picture) find("own").prepend(picture);
  find("mismatch").textContent = mismatch(device, described);
  find("mismatch").hidden = !find("mismatch").textContent;
  find("told").replaceChildren(...lines(device.sheets ? answer.told() : conclusions(device, described)));
  find("agree").checked = false;
  trials();
  return step("preview", { forward });
}

function discard() {
  answer.clear();
  taken = null;
  step("answer", { vote: voting });
  say("Your answer is discarded.");
}

/** Forgets an answer that a report was drawn from, and everything that shows it. */
function forget() {
  answer.clear();
  find("own").querySelector("canvas")?.remove();
  for (const place of ["own-answers", "trials", "said"]) find(place).replaceChildren();
}

/** Follows the browser's Back and Forward, from which nothing is ever drawn. */
function travel({ state }) {
  const now = document.body.dataset.step, { step: to, vote = false } = state ?? {};
  if (new URLSearchParams(location.hash.slice(1)).has("token")) return location.reload();  // another invitation
  if (now === undefined || now === "asking") return now && step(now);  // while a report is drawn, nothing moves
  const answering = Boolean(answer) && voting === vote && kept?.all[vote ? "vote" : "report"] === undefined;
  if (answering && to === "answer") return step(to, { vote });
  if (answering && (to === "preview" || to === "ballot")) {
    onward(false);
    return taken === null ? history.back() : undefined;
  }
  return now === "sent" ? step(now) : arrive();
}

const trials = () => find("trials").replaceChildren(...examples(device, described, taken, exampleOf));

// --- one report ---------------------------------------------------------------------------------

/** Draws once from the answer that the person agreed to; meanwhile they cannot go back.
 *
 * Returns whether something is drawn now. The answer is then forgotten.
 */
async function drawn(kind, before, price, release) {
  const agreed = taken;
  taken = null;
  step("asking");
  try {
    await kept.once(kind, () => unused(kind), () => JSON.stringify(release(agreed)), price);
  } catch (error) {
    taken = agreed;
    step(before);
    throw error;
  }
  forget();
  await account.read();
  return kept.all[kind] !== undefined;
}

async function draw() {
  const done = await drawn("report", "preview", described.epsilon, ({ row, label }) => ({
    artifact: campaign.artifact.sha256, report: device.release(device.encode(row), label, entropy),
  }));
  return done ? deliver() : sent();
}

/** Sends the stored report, byte for byte, until the server has it. */
async function deliver() {
  step("sent");
  say("Sending…");
  find("sent-title").textContent = "Your report is ready";
  find("sent-text").textContent = "It was chosen once. This browser keeps it until the server has it.";
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
        ? "This invitation was used from another browser in the meantime. The server stored nothing new, but it has "
          + "seen both reports." : error.message);
      return;
    }
    await kept.add({ withdrawn: true });
  }
  sent();
}

function exactly() {
  find("bytes").textContent = [kept.all.report, kept.all.vote].filter(Boolean).join("\n\n");
  find("exactly").hidden = !find("bytes").textContent;
  const { artifact, report } = JSON.parse(kept.all.report ?? "{}");
  // A report of another round has other groups, which this page does not have.
  const known = device && report && artifact === campaign.artifact.sha256;
  find("in-words").replaceChildren(...(known ? [inFull(report, device, described, reportOf)] : []));
}

/** Returns a title and a text on the report: drawn here, withdrawn, or unknown to this browser. */
function outcome({ report, withdrawn }) {
  if (report === undefined) return ["Already used", USED];
  if (withdrawn) return ["Withdrawn", "Your report has been deleted. You cannot send another one with this invitation."];
  return ["Thank you", "Your report has arrived. It was chosen once. No other report will be made with this invitation "
    + "as long as this browser keeps its data."];
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
  budget();
}

async function withdraw(receipt, mark) {
  await patiently(() => new Api(id).json("/withdrawals", { body: JSON.stringify({ receipt }) }));
  await kept.add(mark);
  sent();
  say("The server has deleted it.");
}

function receiptText() {
  const { receipt, voteReceipt } = kept.all;
  const lines = [campaign.title, `${location.origin}/c/${id}`, `Receipt of the report: ${receipt}`];
  return [...lines, ...(voteReceipt ? [`Receipt of the vote: ${voteReceipt}`] : []), ""].join("\n");
}

// --- one vote -----------------------------------------------------------------------------------

/** Shows the state of the vote, below the report. */
function invite() {
  const { report, vote, voteReceipt, voteWithdrawn } = kept.all;
  const voted = vote !== undefined, done = voteReceipt || voteWithdrawn || (!voted && used.vote !== "none");
  const reported = report !== undefined || used.report === "stored";
  find("vote-box").hidden = campaign.vote_epsilon === null || !(voted || reported);
  if (find("vote-box").hidden) return;
  find("vote-text").textContent = voteState(kept.all, campaign.model, used.vote);
  const here = usable() && !unfit;
  find("vote").hidden = Boolean(done) || campaign.model === null || !(here || voted) || campaign.state === "closed";
  find("vote-elsewhere").hidden = Boolean(done) || voted || campaign.model === null || here || campaign.state === "closed";
  find("vote-elsewhere").replaceChildren("A browser cannot run this model. Vote on a computer on which Tacit is installed: ",
    command("--vote"));
  find("vote").textContent = voted ? "Send it again" : "Try the model";
  find("vote-receipt").hidden = !voteReceipt || Boolean(voteWithdrawn);
  find("vote-receipt").textContent = voteReceipt ?? "";
}

async function startVote() {
  if (kept.all.vote !== undefined) return deliverVote();
  if (!(await unused("vote"))) return sent();
  account.mustAfford(campaign.vote_epsilon);
  ballot = await new Api(id).json("/ballot");
  if (ballot.model !== campaign.model.sha256 || ballot.epsilon !== campaign.vote_epsilon) {
    throw new Error("The server describes two different votes. Nothing was sent. Load this page again.");
  }
  unfit = [ballot.codewords, ballot.network, ballot.graph].every((one) => one === null);
  if (unfit) return sent();
  votes = votesOf(ballot);
  model = await modelOf(ballot, () => new Api(id).bytes("/model.onnx"));
  voting = true;
  return question("An answer for the model", "Your vote");
}

/** Shows the model's answer, and whether it agrees with the label that the person gave. */
function tryModel(forward) {
  const place = model === null ? device.answer(device.encode(taken.row), ballot) : model.run(taken.row).data[0];
  const said = ballot.answers[place];
  if (said === undefined) throw new Error("The model gives no answer, so nothing was sent.");
  const truth = described.classes[taken.label], right = said === truth;
  const own = ballot.classes === null ? 0 : ballot.classes.indexOf(truth);
  if (own < 0) throw new Error("The server's vote does not include this label, so nothing was sent.");
  taken.symbol = 2 * own + right;
  find("said").textContent = `The model says ${said}. You said ${truth}. It was ${right ? "right" : "wrong"}.`;
  find("vote-told").replaceChildren(...lines(voteTold(ballot, votes, device.cost)));
  find("vote-agree").checked = false;
  step("ballot", { forward, vote: true });
}

async function drawVote() {
  const done = await drawn("vote", "ballot", ballot.epsilon, ({ symbol }) => ({
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

/** Handles a form once at a time: its button is disabled until the work is done. */
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
onSubmit("limit-form", setLimit);
on("start", "click", start);
on("continue", "click", () => onward());
on("discard", "click", discard);
on("again", "click", trials);
for (const name of ["back-welcome", "back-answer", "back-vote"]) on(name, "click", () => history.back());
on("resend", "click", deliver);
on("withdraw", "click", () => withdraw(kept.all.receipt, { withdrawn: true }));
on("withdraw-vote", "click", () => withdraw(kept.all.voteReceipt, { voteWithdrawn: true }));
on("vote", "click", startVote);
on("copy", "click", async () => { await navigator.clipboard.writeText(find("receipt").textContent); say("Copied."); });
on("save", "click", () => save("receipt.txt", receiptText()));
addEventListener("popstate", (event) => attempt(() => travel(event)));

attempt(begin);
