// A live page asks its own server for newer data, and shows what changed without losing choices, focus and place.
const EVERY = 2000, HIDDEN = 15000;
const status_ = el("p", { id: "live", role: "status" });
const fresh = JSON.parse(document.getElementById("data").textContent); // what is drawn keeps its own marks in the data
let version = fresh.version, sections = JSON.stringify(fresh.sections), asked = Date.now(), lost = false;
const resultsOf = (group) => JSON.stringify({ ...group, going: null });
const drawnFrom = new Map(views.map((view, place) => [view, resultsOf(fresh.groups[place])]));
document.querySelector("header").append(status_);

const clock = () => new Date().toLocaleTimeString("en-GB");
function tell(words, gone) {
  if (status_.textContent === words) return;
  status_.textContent = words;
  status_.classList.toggle("lost", Boolean(gone));
}
tell(`Live. Last change at ${clock()}.`);

// A way to find an element again after its part was made anew: what it is and says, and which of those alike.
const FOCUSABLE = "button, input, select, summary, a, .scroll";
const called = (node) => [node.tagName, node.id, node.type, node.getAttribute("aria-label"), node.value, (node.id ? "" : node.textContent).replace(/\d+/g, "")].join("|");
function findable(root, node) {
  const name = called(node), alike = [...root.querySelectorAll(FOCUSABLE)].filter((each) => called(each) === name);
  return { name, place: alike.indexOf(node) };
}
const foundAgain = (root, key) => [...root.querySelectorAll(FOCUSABLE)].filter((each) => called(each) === key.name)[key.place];

// Runs a change of a part of the page, and keeps heights, opened details, sideways scrolling and focus.
function keeping(root, change) {
  const heights = [...root.querySelectorAll(".plot")].map((node) => node.offsetHeight);
  const open = [...root.querySelectorAll("details")].filter((node) => node.open).map((node) => findable(root, node.querySelector("summary")));
  const aside = [...root.querySelectorAll(".scroll")].filter((node) => node.scrollLeft).map((node) => [findable(root, node), node.scrollLeft]);
  const focused = root.contains(document.activeElement) ? findable(root, document.activeElement) : null;
  change();
  [...root.querySelectorAll(".plot")].forEach((node, place) => { if (heights[place]) node.style.minHeight = heights[place] + "px"; });
  for (const key of open) { const found = foundAgain(root, key); if (found) found.parentElement.open = true; }
  for (const [key, left] of aside) { const found = foundAgain(root, key); if (found) found.scrollLeft = left; }
  const again = focused && foundAgain(root, focused);
  if (again && again !== document.activeElement) again.focus({ preventScroll: true });
}

// The heading that the reader is at stays where it is on the screen.
function inPlace(change) {
  const headings = () => [...document.querySelectorAll("h2, h3, h4")].filter((node) => !node.closest("dialog"));
  const named = (node) => (node.closest(".group") || {}).id + "|" + (node.tagName === "H2" ? "" : node.textContent);
  const at = headings().filter((node) => node.getBoundingClientRect().top < innerHeight / 2).pop();
  const key = at && named(at), top = at && at.getBoundingClientRect().top;
  change();
  const again = key && scrollY > 0 && headings().find((node) => named(node) === key);
  if (again) scrollBy({ top: again.getBoundingClientRect().top - top, behavior: "instant" });
}

function renew(data) {
  const main = document.querySelector("main"), now = JSON.stringify(data.sections);
  document.title = data.title;
  document.querySelector("h1").textContent = data.title;
  document.querySelector("header > p").textContent = data.lead;
  document.querySelector("footer").textContent = data.footer;
  if (now !== sections) {
    sections = now;
    main.querySelectorAll("section.group[id^=section-]").forEach((node) => { forget(node); node.remove(); });
    main.prepend(...data.sections.map(sectionNode));
  }
  // A group is known by its name, and by which of that name it is.
  const known = new Map(), count = new Map();
  const key = (group) => { const n = count.get(group.name) || 0; count.set(group.name, n + 1); return `${n} ${group.name}`; };
  for (const view of views) known.set(key(view.group), view);
  count.clear();
  const next = data.groups.map((group) => {
    const name = key(group), view = known.get(name);
    known.delete(name);
    return view ? (view.renew(group), view) : added(group);
  });
  for (const view of known.values()) { forget(view.whole); view.whole.remove(); drawnFrom.delete(view); }
  views.splice(0, views.length, ...next);
  views.forEach((view, place) => { if (main.querySelectorAll("section.group[id^=group-]")[place] !== view.whole) main.append(view.whole); });
  contents({ sections: data.sections, groups: views.map((view) => view.group) });
  document.querySelectorAll("body > nav a").forEach((link, place) => { if (place >= data.sections.length) link.href = `#group-${views[place - data.sections.length].number}`; });
}
let numbers = views.length;
function added(group) {
  const now = resultsOf(group), view = new Comparison(group, numbers++);
  drawnFrom.set(view, now);
  document.querySelector("main").append(view.node());
  return view;
}

Comparison.prototype.renew = function (group) {
  const now = resultsOf(group);
  this.going.replaceChildren(...goingOn(group));
  if (drawnFrom.get(this) === now) return;
  drawnFrom.set(this, now);
  const before = new Set(this.group.lines.map((line) => line.label)), seeds = new Set(this.seeds), tools = this.offered();
  this.take(group);
  this.seeds.filter((seed) => !seeds.has(seed)).forEach((seed) => this.chosen.add(seed));
  group.lines.filter((line) => !before.has(line.label) && (this.drawn.size < BEST || !before.size)).forEach((line) => this.drawn.add(line.label));
  if (!this.metricOf(this.metric)) this.metric = group.score.metric;
  this.title.textContent = group.title;
  keeping(this.whole, () => {
    if (tools !== this.offered()) {
      const made = this.tools();
      this.chooser.replaceWith(made);
      this.chooser = made;
    }
    this.draw();
  });
};
Comparison.prototype.offered = function () {
  return JSON.stringify([this.group.lines.length > BEST, this.group.lines.length > 1, this.group.metrics.map((metric) => metric.name), this.seeds]);
};

let moved = 0;
addEventListener("scroll", () => (moved = Date.now()), { passive: true });
async function ask() {
  asked = Date.now();
  try {
    const answer = await fetch(`data?since=${encodeURIComponent(version)}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    if (answer.status === 200) {
      const data = await answer.json();
      while (Date.now() - moved < 400) await new Promise((go) => setTimeout(go, 100)); // a scroll in progress ends first
      version = data.version;
      inPlace(() => renew(data));
      tell(data.fault || `Live. Last change at ${clock()}.`, Boolean(data.fault));
    } else if (lost) tell(`Live again, since ${clock()}.`);
    lost = false;
  } catch (error) {
    if (!lost) tell(`Not connected since ${clock()}: what is shown may be old. Is vcl watch still running?`, true);
    lost = true;
  }
}
async function follow() {
  if (!document.hidden || Date.now() - asked > HIDDEN) await ask();
  setTimeout(follow, EVERY);
}
document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
setTimeout(follow, EVERY);
