/* The participant's page: who asks, an answer, what would be sent, consent, one report, a receipt. */

import { Answer, askable } from "./answer.js";
import { Api, patiently } from "./api.js";
import { deviceOf, modelOf, mustAgree, votesOf } from "./device.js";
import { dots } from "./dots.js";
import * as language from "./language.js";
import { Kept } from "./kept.js";
import { Told, pieces, quote, text } from "./language.js";
import { Account } from "./ledger.js";
import { Outbox, UNASKED } from "./outbox.js";
import { attempt, campaignId, complain, explained, find, make, save, say, step } from "./page.js";
import { examples, inFull, mismatch, own } from "./preview.js";
import { SystemEntropy } from "./randomness.js";
import { Sheet, exampleOf, promises, reportOf } from "./sheet.js";
import { closed, conclusions, facts, terms, voteState, voteTold } from "./words.js";

const entropy = new SystemEntropy();
const AGAIN = 60_000;  // milliseconds until what waits is tried again
let id, campaign, described, device, kept, outbox, answer, taken, ballot, votes, model, account;
let voting = false, unfit = false;  // unfit: a browser cannot run the model

// --- beginning ----------------------------------------------------------------------------------

function mustBeSecure() {
  if (!globalThis.isSecureContext || !globalThis.crypto?.subtle || !crypto.getRandomValues) {
    throw new Told("error-insecure");
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
  await speak(language.wanted());
  say(text("loading"));
  mustBeSecure();
  navigator.serviceWorker?.register("/c/worker.js").catch(() => {});  // without one, a page is not opened offline
  id = campaignId();
  const open = new Api(id);
  campaign = await (await open.copy("")).json();
  if (campaign.id !== id) throw new Told("error-other-survey");
  // The round is named, because the next one may begin between two requests.
  const round = `?round=${Number(campaign.round)}`;
  described = await (await open.copy(`/device${round}`, { keep: "default" })).json();
  const encoder = usable() && described.encoder ? await (await open.copy(`/encoder${round}`)).arrayBuffer() : null;
  if (usable()) device = await deviceOf(described, encoder);
  mustAgree(campaign, described, device);
  describe();
  account = await Account.of();
  if (token === null) return arrive();
  try {
    return await use(token);
  } catch (error) {
    if (!outbox) arrive();  // the person can type another code
    throw error;
  }
}

/** Returns what to type on a computer on which Tacit is installed. */
const command = (more = "") => make("code", { dir: "ltr" },
  `tacit campaign take-part ${location.origin}/c/${id} --token YOUR-CODE --data row.csv ${more}`.trim());

const usable = () => described.channel !== null && askable(described.schema);

/** Starts with an invitation code, trimmed so that what this browser stored under it is found again. */
async function use(given) {
  const token = given.trim();
  if (!/^[\w-]{1,128}$/.test(token)) {
    throw new Told("error-code");
  }
  const stored = await Kept.of(id, token), found = new Outbox(new Api(id, token), stored);
  const reached = stored.all.report !== undefined || (await found.may("report")) !== UNASKED;
  [kept, outbox] = [stored, found];
  history.replaceState({ token }, "", location.pathname);
  await arrive();
  if (!reached) say(text("offline"));
}

/** Shows the step where this person left off. */
function arrive() {
  if (kept?.all.report !== undefined) return outbox.waits("report") ? deliver() : sent();
  if (outbox && outbox.used.report !== "none") return sent();
  find("invitation").hidden = Boolean(outbox) || !usable() || campaign.state !== "open";
  find("start").hidden = !outbox || !usable() || campaign.state !== "open";
  step("welcome");
  say(closed(campaign));
  budget();
  return undefined;
}

/** Speaks a language, and writes in it what the page shows already. */
async function speak(chosen) {
  await language.speak(chosen);
  language.translate();
  if (!campaign) document.title = text("take-part");
  find("language").value = chosen;
  find("certificate-language").hidden = chosen === "en";
}

const SHOWN = { welcome: arrive, answer: titles, preview: () => onward(false), ballot: () => onward(false), sent };

/** Changes the language; the form keeps what is filled in, and nothing is drawn or sent. */
async function change({ target }) {
  language.choose(target.value);
  await speak(target.value);
  if (!account) return;
  describe();
  answer?.render();
  if (!outbox?.busy) await SHOWN[document.body.dataset.step]?.();
  target.focus({ preventScroll: true });
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
  return question();
}

async function setLimit() {
  await account.set(Number(find("limit").value));
  budget();
  say(text("budget-done"));
}

const lines = (sentences) => sentences.map((line) => make("li", {}, line));

/** Shows what is not protected; a sentence of the certificate that no catalogue has stays in English. */
const limits = (sentences) => sentences.map((sentence) => {
  const key = language.keyOf(sentence, "limit-");
  return key ? make("li", {}, text(key)) : make("li", { lang: "en", dir: "ltr" }, sentence);
});

/** Shows a term: the owner's own words, what the page says, or both. */
function term(name, { given, said }) {
  const parts = [...(given ? [quote(make("span"), given)] : []), ...(said ? [make("span", {}, said)] : [])];
  find(`term-${name}`).replaceChildren(...parts);
  find(`term-${name}`).parentElement.hidden = parts.length === 0;
}

function describe() {
  language.hear(campaign);
  document.title = quote(find("title"), campaign.title).textContent;
  quote(find("purpose"), campaign.purpose);
  if (campaign.question) quote(find("question"), campaign.question);
  else find("question").textContent = text(described.schema.image ? "which-drawn" : "which");
  const said = { ...facts(campaign, described, device), ...(device?.sheets ? promises(device) : {}) };
  for (const [name, line] of Object.entries(said)) {
    find(`fact-${name}`).textContent = line;
    find(`fact-${name}`).hidden = line === null;
  }
  for (const [name, one] of Object.entries(terms(campaign))) term(name, one);
  if (!campaign.delta) for (const place of ["risk", "risk-again"]) find(place).replaceChildren(dots(described.epsilon));
  for (const list of ["limits", "limits-again"]) find(list).replaceChildren(...limits(campaign.certificate.not_protected));
  find("explanation").replaceChildren(...explained(campaign.explanation));
  find("certificate").href = `/v1/campaigns/${id}/certificate?round=${Number(campaign.round)}`;
  find("notice").href = `/c/${id}/notice`;
  find("elsewhere").hidden = usable();
  find("elsewhere").replaceChildren(...pieces("elsewhere", { command: command() }));
}

// --- an answer ----------------------------------------------------------------------------------

function question() {
  answer ??= new Answer(described, campaign.question);
  titles();
  step("answer", { forward: true, vote: voting });
}

/** Says what the form is for. */
function titles() {
  find("answer-step").textContent = text(voting ? "step-vote" : "step-1");
  find("answer-title").textContent = text(voting ? "answer-vote" : device.sheets ? "answers-title" : "answer-title");
}

/** Draws the sheet of questions once, before anything is asked, and keeps it: answers cannot choose it. */
async function startSurvey() {
  await kept.once("sheet", () => outbox.may("report"), () => device.assign(entropy), null);
  const { sheet } = kept.all;
  if (sheet === undefined) return sent();
  answer ??= new Sheet(device, sheet);
  titles();
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
  say(text("discarded"));
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
    await kept.once(kind, () => outbox.may(kind), () => JSON.stringify(release(agreed)), price);
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
  say(text("sending"));
  [find("sent-title").textContent, find("sent-text").textContent] = [text("ready-title"), text("ready")];
  find("resend").hidden = true;
  try {
    await outbox.send("report");
  } catch (error) {
    if (error.code !== "withdrawn") return notYet(error);
    await kept.add({ withdrawn: true });
  }
  return sent();
}

/** Says why the report is still here: it waits, or the server refuses it. */
function notYet(error) {
  sent();
  find("resend").hidden = !error.passing;
  complain(error.code === "already-reported" ? text("used-both") : language.worded(error));
}

/** Sends what waits, if this page is where it would be seen. */
function retry() {
  if (document.body.dataset.step !== "sent" || !outbox || outbox.busy || document.hidden) return;
  if (outbox.waits("report")) attempt(deliver, language.worded);
  else if (outbox.waits("vote")) attempt(deliverVote, language.worded);
}

function exactly() {
  find("bytes").textContent = [kept.all.report, kept.all.vote].filter(Boolean).join("\n\n");
  find("exactly").hidden = !find("bytes").textContent || outbox.overtaken("report");
  find("exactly-title").textContent = text(outbox.waits("report") ? "exactly-waiting" : "exactly-title");
  const { artifact, report } = JSON.parse(kept.all.report ?? "{}");
  // A report of another round has other groups, which this page does not have.
  const known = device && report && artifact === campaign.artifact.sha256;
  find("in-words").replaceChildren(...(known ? [inFull(report, device, described, reportOf)] : []));
}

/** Returns a title and a text on the report: waiting, drawn here, withdrawn, or unknown to this browser. */
function outcome({ report, withdrawn }) {
  if (report === undefined) return [text("used-title"), text("used")];
  if (outbox.overtaken("report")) return [text("used-title"), text("used-waiting")];
  if (outbox.waits("report")) return [text("waiting-title"), text("waiting")];
  if (withdrawn) return [text("withdrawn-title"), text("withdrawn")];
  return [text("sent-title"), text("sent")];
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
  say(text("deleted"));
}

function receiptText() {
  const { receipt, voteReceipt } = kept.all;
  const said = [find("title").textContent, `${location.origin}/c/${id}`, text("receipt-report", { receipt })];
  return [...said, ...(voteReceipt ? [text("receipt-vote", { receipt: voteReceipt })] : []), ""].join("\n");
}

// --- one vote -----------------------------------------------------------------------------------

/** Shows the state of the vote, below the report. */
function invite() {
  const { report, vote, voteReceipt, voteWithdrawn } = kept.all;
  const voted = vote !== undefined, done = voteReceipt || voteWithdrawn || outbox.overtaken("vote") || (!voted && outbox.used.vote !== "none");
  const reported = report !== undefined || outbox.used.report === "stored";
  find("vote-box").hidden = campaign.vote_epsilon === null || !(voted || reported);
  if (find("vote-box").hidden) return;
  find("vote-text").textContent = voteState(kept.all, campaign.model, outbox.used.vote);
  const here = usable() && !unfit;
  find("vote").hidden = Boolean(done) || campaign.model === null || !(here || voted) || campaign.state === "closed";
  find("vote-elsewhere").hidden = Boolean(done) || voted || campaign.model === null || here || campaign.state === "closed";
  find("vote-elsewhere").replaceChildren(...pieces("vote-elsewhere", { command: command("--vote") }));
  find("vote").textContent = text(voted ? "vote-again" : "vote-try");
  find("vote-receipt").hidden = !voteReceipt || Boolean(voteWithdrawn);
  find("vote-receipt").textContent = voteReceipt ?? "";
}

async function startVote() {
  if (kept.all.vote !== undefined) return deliverVote();
  await outbox.ask();
  if (outbox.used.vote !== "none") return sent();
  account.mustAfford(campaign.vote_epsilon);
  ballot = await new Api(id).json("/ballot");
  if (ballot.model !== campaign.model.sha256 || ballot.epsilon !== campaign.vote_epsilon) {
    throw new Told("error-two-votes");
  }
  unfit = [ballot.codewords, ballot.network, ballot.graph].every((one) => one === null);
  if (unfit) return sent();
  votes = votesOf(ballot);
  model = await modelOf(ballot, () => new Api(id).bytes("/model.onnx"));
  voting = true;
  return question();
}

/** Shows the model's answer, and whether it agrees with the label that the person gave. */
function tryModel(forward) {
  const place = model === null ? device.answer(device.encode(taken.row), ballot) : model.run(taken.row).data[0];
  const said = ballot.answers[place];
  if (said === undefined) throw new Told("error-no-answer");
  const truth = described.classes[taken.label], right = said === truth;
  const own = ballot.classes === null ? 0 : ballot.classes.indexOf(truth);
  if (own < 0) throw new Told("error-no-label");
  taken.symbol = 2 * own + right;
  const both = { said: language.owners(said), truth: language.owners(truth) };
  find("said").textContent = text(right ? "ballot-right" : "ballot-wrong", both);
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
  say(text("sending"));
  try {
    await outbox.send("vote");
  } catch (error) {
    say(error.passing ? text("waiting-vote") : "");
    complain(language.worded(error));
    return;
  }
  sent();
  if (kept.all.voteReceipt) say(text("vote-sent"));
}

// --- buttons ------------------------------------------------------------------------------------

const on = (name, kind, work) => find(name).addEventListener(kind, (event) => {
  event.preventDefault();
  attempt(() => work(event), language.worded);
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
on("language", "change", change);
on("copy", "click", async () => { await navigator.clipboard.writeText(find("receipt").textContent); say(text("copied")); });
on("save", "click", () => save("receipt.txt", receiptText()));
addEventListener("popstate", (event) => attempt(() => travel(event), language.worded));
for (const event of ["online", "focus", "pageshow"]) addEventListener(event, retry);
document.addEventListener("visibilitychange", retry);
setInterval(retry, AGAIN);

find("language").append(...Object.entries(language.LANGUAGES).map(([tag, name]) =>
  make("option", { value: tag, lang: tag, dir: language.directionOf(tag) }, name)));
find("language").hidden = false;
attempt(begin, language.worded);
