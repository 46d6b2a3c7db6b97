// One comparison: methods on one stream of tasks. All that is shown is computed here from the rows, for the seeds and
// methods that are chosen.
const BEST = 8;
const SMALL = 12;
const shownName = (label) => label.replace(" lambda=", " λ=");
const legend = (lines_) => el("ul", { class: "legend" }, ...lines_.map((line) => el("li", {}, swatch(line.place), shownName(line.label))));
const figure = (title, draw, ...below) => el("figure", {}, el("figcaption", {}, title), lazily(el("div", { class: "plot" }), draw), ...below);

class Comparison {
  constructor(group, number) {
    Object.assign(this, { number, words: "", order: null });
    this.take(group);
    this.chosen = new Set(this.seeds);
    this.metric = group.score.metric;
    this.drawn = new Set(this.best().map((line) => line.label));
  }
  take(group) {
    this.group = group;
    group.lines.forEach((line, place) => { line.place = place; line.arrays = new Map(); });
    this.seeds = [...new Set(group.lines.flatMap((line) => line.seeds))].sort((a, b) => a - b);
  }
  metricOf(name) { return this.group.metrics.find((metric) => metric.name === name); }
  unitOf(metric) { return metric.unit.trim() ? ` ${metric.unit.trim()}` : ""; }
  digitsOf(metric) { return metric.scale === 100 ? 1 : 3; }
  // A[seed, after, on], scaled; NaN where there is no row.
  value(line, metric, seed, after, on) {
    const packed = Object.hasOwn(line.values, metric.name) ? line.values[metric.name] : null;
    if (!packed || after > line.tasks) return NaN;
    if (!line.arrays.has(metric.name)) line.arrays.set(metric.name, unpacked(packed));
    const array = line.arrays.get(metric.name);
    return metric.scale * array[line.seeds.indexOf(seed) * ((line.tasks * (line.tasks + 1)) / 2) + (after * (after - 1)) / 2 + on - 1];
  }
  // Whether some line has numbers from before its last task; a grid of lambda may keep those of the end alone.
  followed(lines_, metric) {
    return lines_.some((line) => this.range(line.tasks - 1).some((after) => line.seeds.some((seed) => Number.isFinite(this.value(line, metric, seed, after, after)))));
  }
  seedsOf(line) { return line.seeds.filter((seed) => this.chosen.has(seed)); }
  over(line, take) { return summary(this.seedsOf(line).map(take)); }
  range(n) { return Array.from({ length: n }, (_, place) => place + 1); }
  soFar(line, metric, seed, after) { return average(this.range(after).map((on) => this.value(line, metric, seed, after, on))); }
  final(line, metric) { return this.over(line, (seed) => this.soFar(line, metric, seed, line.tasks)); }
  forgotten(line, metric, seed, on) {
    const past = this.range(line.tasks - 1).filter((after) => after >= on).map((after) => this.value(line, metric, seed, after, on)).filter(Number.isFinite);
    return (past.length ? Math.max(...past) : NaN) - this.value(line, metric, seed, line.tasks, on);
  }
  moved(line, metric, seed, on) { return this.value(line, metric, seed, line.tasks, on) - this.value(line, metric, seed, on, on); }
  overTasks(line, take) { return line.tasks < 2 ? summary([]) : this.over(line, (seed) => average(this.range(line.tasks - 1).map((on) => take(seed, on)))); }
  best() {
    const score = this.metricOf(this.group.score.metric);
    if (!score || this.group.lines.length <= BEST) return this.group.lines;
    return this.group.lines.map((line) => [line, this.final(line, score).mean]).sort((a, b) => b[1] - a[1]).slice(0, BEST).map((pair) => pair[0]);
  }
  matching() {
    const words = this.words.toLowerCase().split(/\s+/).filter(Boolean);
    return this.group.lines.filter((line) => words.every((word) => shownName(line.label).toLowerCase().includes(word)));
  }
  lines() { return this.matching().filter((line) => this.drawn.has(line.label)); }

  // The rows behind a number: of a line, a metric, and the pairs (after, on) that ``wanted`` accepts.
  open(line, metric, wanted, what) {
    const rows = [];
    for (const seed of this.seedsOf(line)) for (const after of this.range(line.tasks)) for (const on of this.range(after)) {
      if (!wanted(after, on)) continue;
      const value = this.value(line, { ...metric, scale: 1 }, seed, after, on);
      if (!Number.isNaN(value)) rows.push([line.label, seed, after, on, metric.name, value]);
    }
    showRows(`${shownName(line.label)}: ${what}`, ["method", "seed", "after", "on", "metric", "value"], rows, fileName(this.group.name, line.label, metric.name));
  }
  allRows() {
    const rows = [];
    for (const line of this.group.lines) for (const metric of this.group.metrics) for (const after of this.range(line.tasks)) for (const on of this.range(after)) for (const seed of line.seeds) {
      const value = this.value(line, { ...metric, scale: 1 }, seed, after, on);
      if (!Number.isNaN(value)) rows.push([line.label, seed, after, on, metric.name, value]);
    }
    return rows;
  }

  node() {
    const group = this.group, id = `group-${this.number}`;
    this.title = el("h2", { id: `${id}-title` }, group.title);
    this.going = el("div");
    this.chooser = this.tools();
    this.table = el("div", { class: "headline" });
    this.body = el("div");
    this.whole = el("section", { class: "group", id, "aria-labelledby": `${id}-title` },
      this.title, group.about ? el("p", { class: "lead" }, group.about) : null, this.going, this.chooser, this.table, this.body);
    this.draw();
    return this.whole;
  }
  tools() {
    const group = this.group, id = `group-${this.number}`;
    const search = el("input", { type: "search", id: `${id}-search`, placeholder: "such as vcl", value: this.words, oninput: (event) => { this.words = event.target.value; this.draw(); } });
    const select = el("select", { id: `${id}-metric`, onchange: (event) => { this.metric = event.target.value; this.draw(); } },
      ...group.metrics.map((metric) => el("option", { value: metric.name, selected: metric.name === this.metric }, metric.name)));
    const seeds = el("fieldset", { class: "seeds" }, el("legend", {}, "Seeds"), ...this.seeds.map((seed) => el("label", { class: "chip" },
      el("input", { type: "checkbox", checked: this.chosen.has(seed), value: seed, onchange: (event) => { event.target.checked ? this.chosen.add(seed) : this.chosen.delete(seed); this.draw(); } }), String(seed))));
    const set = (name, lines_) => el("button", { type: "button", class: "quiet", onclick: () => { this.drawn = new Set(lines_().map((line) => line.label)); this.draw(); } }, name);
    const several = group.lines.length > 1;
    return el("div", { class: "tools" },
      several ? el("div", { class: "field" }, el("label", { for: `${id}-search` }, "Methods"), search) : null,
      el("div", { class: "field" }, el("label", { for: `${id}-metric` }, "Metric"), select), this.seeds.length > 1 ? seeds : null,
      el("div", { class: "field buttons" },
        group.lines.length > BEST ? set(`Draw best ${BEST}`, () => this.best()) : null, several ? set("Draw all", () => group.lines) : null, several ? set("Draw none", () => []) : null,
        el("button", { type: "button", class: "quiet", onclick: () => download(fileName(group.name, "rows"), ["method", "seed", "after", "on", "metric", "value"], this.allRows()) }, "All rows as CSV")));
  }
  draw() {
    const all = this.matching(), none = !this.group.lines.length;
    this.going.replaceChildren(...goingOn(this.group));
    this.chooser.hidden = none;
    if (none) {
      const notes = this.group.unfinished.length ? this.group.unfinished : ["No task is finished yet."];
      this.table.replaceChildren(...notes.map((text) => el("p", { class: "note" }, text)));
      this.body.replaceChildren();
      return;
    }
    this.table.replaceChildren(...this.headline(all));
    this.drawBody();
  }
  drawBody() {
    forget(this.body);
    const lines_ = this.lines(), metric = this.metricOf(this.metric);
    const parts = metric && lines_.length && this.chosen.size ? [
      this.curves(lines_, metric), this.perTask(lines_, metric), this.matrices(lines_, metric), this.changes(lines_, metric),
      calibration(this, lines_), this.others(lines_), this.lambdas(metric), convergence(this, lines_), fits(this, lines_)] : [el("p", { class: "note" }, "Nothing is chosen: choose a method in the table, and a seed.")];
    const shown = [...parts, pictures(this), cost(this), settings(this, lines_), made(this)].filter(Boolean);
    this.body.replaceChildren(...this.jumps(shown), ...shown);
  }
  // Links to the parts of this comparison, which gets long.
  jumps(shown) {
    const known = shown.filter((part) => part.querySelector("h3")).map((part, place) => [part, part.querySelector("h3").textContent.split(":")[0], `group-${this.number}-part-${place}`]);
    if (known.length < 3) return [];
    for (const [part, , id] of known) part.id = id;
    return [el("nav", { class: "jumps", "aria-label": `Parts of ${this.group.title}` }, el("ul", {}, ...known.map(([, name, id]) => el("li", {}, el("a", { href: "#" + id }, name)))))];
  }

  headline(lines_) {
    const group = this.group, score = this.metricOf(group.score.metric), others = group.metrics.filter((metric) => metric !== score && metric.table);
    const known = lines_.map((line) => ({ line, end: score ? this.final(line, score) : summary([]) }));
    const span = limits(known.flatMap(({ line, end }) => [end.mean - (end.error || 0), end.mean + (end.error || 0), line.paper]), 0.5 * (score ? score.scale / 100 : 1));
    const paper = group.lines.some((line) => line.paper !== null), tasks = score && this.followed(group.lines, score);
    const digits = score ? (score.scale === 100 ? 2 : 3) : 3;
    const columns = [{ name: "method" }, score && { name: group.score.name + (score.unit.trim() ? `, ${score.unit.trim()}` : ""), number: true, title: "Averaged over the tasks, after the last one; mean ± standard error over seeds" },
      score && { name: "on one scale", plain: true }, paper && { name: "paper", number: true }, paper && { name: "ours\u00a0−\u00a0paper", number: true },
      tasks && { name: "forgetting", number: true, title: "How far earlier tasks fell from their best" }, tasks && { name: "backward transfer", number: true, title: "The change of earlier tasks since each was learned" },
      ...others.map((metric) => ({ name: metric.name + (metric.unit.trim() ? `, ${metric.unit.trim()}` : ""), number: true, title: metric.better ? `${metric.better} is better` : "" })),
      { name: "seeds", number: true }, { name: "time", number: true, title: "Computing time of the whole part: all of its seeds and lambdas" }].filter(Boolean);
    const rows = known.map(({ line, end }) => {
      const mark = (s, d, metric, wanted, what) => ({ value: s.mean, text: plusMinus(s, d), rows: s.n ? () => this.open(line, metric, wanted, what) : null });
      const box = el("input", { type: "checkbox", checked: this.drawn.has(line.label), onchange: (event) => { event.target.checked ? this.drawn.add(line.label) : this.drawn.delete(line.label); this.drawBody(); } });
      return [{ value: line.label, node: el("label", { class: "line" }, box, swatch(line.place), el("span", {}, shownName(line.label)), line.going ? el("span", { class: "badge even" }, `after ${line.tasks}`) : null) },
        score && mark(end, digits, score, (after) => after === line.tasks, `${group.score.name} after the last task`),
        score && { value: end.mean, node: strip(end, line, span) }, paper && { value: line.paper, text: text(line.paper ?? NaN, 1) },
        paper && { value: line.paper === null || line.going ? NaN : end.mean - line.paper, text: line.paper === null || line.going ? "–" : (end.mean > line.paper ? "+" : "") + text(end.mean - line.paper, 2), rows: score && (() => this.open(line, score, (after) => after === line.tasks, `${group.score.name} after the last task`)) },
        tasks && mark(this.overTasks(line, (seed, on) => this.forgotten(line, score, seed, on)), digits, score, (after, on) => on < line.tasks, "forgetting"),
        tasks && mark(this.overTasks(line, (seed, on) => this.moved(line, score, seed, on)), digits, score, (after, on) => on < line.tasks && (after === on || after === line.tasks), "backward transfer"),
        ...others.map((metric) => mark(this.final(line, metric), 3, metric, (after) => after === line.tasks, `${metric.name} after the last task`)),
        { value: this.seedsOf(line).length, text: String(this.seedsOf(line).length) }, { value: line.seconds ?? NaN, text: duration(line.seconds ?? NaN), rows: costRows(this, line) }].filter((cell) => cell !== false && cell !== undefined);
    });
    const caption = "After the last task";
    const note = el("p", { class: "note" }, group.explained);
    return [...table({ caption, columns, rows, most: 25, order: this.order, onsort: (order) => (this.order = order), name: fileName(group.name, "table") }), note];
  }

  // Curves of an average so far, one point for each number of tasks learned.
  course(lines_, metric) {
    return lines_.map((line) => ({ name: shownName(line.label), line, place: line.place, points: this.range(line.tasks).map((x) => ({ x, ...this.over(line, (seed) => this.soFar(line, metric, seed, x)) })) }));
  }
  told(series, metric) {
    return series.map((one) => `${one.name} ${text(one.points[one.points.length - 1].mean, this.digitsOf(metric))}`).join(", ");
  }
  curveOf(lines_, metric, small) {
    const series = this.course(lines_, metric), scored = metric.name === this.group.score.metric;
    const marks = scored && !small ? lines_.filter((line) => line.paper !== null).map((line) => ({ value: line.paper, place: line.place })) : [];
    return lines({ series, marks, xs: this.range(Math.max(...lines_.map((line) => line.tasks))), label: "tasks learned", small, digits: this.digitsOf(metric), unit: this.unitOf(metric),
      alt: `Average ${metric.name} against the number of tasks learned. At the end: ${this.told(series, metric)}.`,
      open: (one, p) => this.open(one.line, metric, (after) => after === p.x, `${metric.name} after ${p.x} tasks`) });
  }
  numbers(lines_, metric) {
    const tasks = Math.max(...lines_.map((line) => line.tasks));
    const place = el("div"), box = el("details", { class: "numbers", ontoggle: () => {
      if (!box.open || place.childNodes.length) return;
      const rows = this.course(lines_, metric).map((one) => [one.name, ...this.range(tasks).map((x) => {
        const p = one.points[x - 1];
        return p && { value: p.mean, text: plusMinus(p, this.digitsOf(metric)), rows: () => this.open(one.line, metric, (after) => after === x, `${metric.name} after ${x} tasks`) };
      })]);
      place.append(...table({ caption: `Average ${metric.name} after each number of tasks`, columns: [{ name: "method" }, ...this.range(tasks).map((x) => ({ name: String(x), number: true }))], rows, name: fileName(this.group.name, metric.name, "course") }));
    } }, el("summary", {}, "These numbers as a table"), place);
    return box;
  }
  curves(lines_, metric) {
    if (!this.followed(lines_, metric)) return null;
    const scored = metric.name === this.group.score.metric && lines_.some((line) => line.paper !== null);
    return el("section", {}, el("h3", {}, `Average ${metric.name} as tasks are learned`), legend(lines_),
      figure(`${metric.name}${metric.unit.trim() ? ` (${metric.unit.trim()})` : ""}, averaged over the tasks so far. Bands are one standard error over seeds${scored ? "; dashes at the right are the paper's numbers" : ""}.`, this.curveOf(lines_, metric)), this.numbers(lines_, metric));
  }
  perTask(lines_, metric) {
    const tasks = this.group.tasks.length;
    if (tasks > SMALL || !this.followed(lines_, metric)) return null;
    const panels = [], seen = [];
    for (const on of this.range(tasks)) {
      const series = lines_.filter((line) => line.tasks >= on).map((line) => ({ name: shownName(line.label), line, place: line.place,
        points: this.range(line.tasks).filter((x) => x >= on).map((x) => ({ x, ...this.over(line, (seed) => this.value(line, metric, seed, x, on)) })) }));
      seen.push(...series.flatMap((one) => one.points.map((p) => p.mean)));
      panels.push({ on, series });
    }
    const range = limits(seen);
    const shown = panels.filter(({ series }) => series.some((one) => one.points.some((p) => Number.isFinite(p.mean)))).map(({ on, series }) => figure(this.group.tasks[on - 1],
      lines({ series, xs: this.range(tasks), range, label: "tasks learned", small: true, digits: this.digitsOf(metric), unit: this.unitOf(metric), alt: `${metric.name} on ${this.group.tasks[on - 1]}. At the end: ${this.told(series, metric)}.`,
        open: (one, p) => this.open(one.line, metric, (after, task) => after === p.x && task === on, `${metric.name} on ${this.group.tasks[on - 1]} after ${p.x} tasks`) })));
    return el("section", {}, el("h3", {}, "Each task as more are learned"), legend(lines_), el("div", { class: "panels" }, ...shown));
  }
  matrices(lines_, metric) {
    const tasks = this.group.tasks.length;
    if (tasks < 2) return null;
    const of = (line) => this.range(line.tasks).map((after) => this.range(line.tasks).map((on) => (on > after ? null : this.over(line, (seed) => this.value(line, metric, seed, after, on)))));
    const known = lines_.map((line) => ({ line, cells: of(line) }));
    const seen = known.flatMap(({ cells }) => cells.flat().filter(Boolean).map((s) => s.mean)).filter(Number.isFinite);
    if (!seen.length) return null;
    const low = Math.min(...seen), high = Math.max(...seen), digits = metric.scale === 100 ? (tasks > 10 ? 0 : 1) : 2;
    const cell = (line, after, s, on) => s && { value: s.mean, word: text(s.mean, digits), open: () => this.open(line, metric, (a, o) => a === after && o === on, `${metric.name} on task ${on} after ${after} tasks`) };
    const map = (caption, corner, rowNames, columns, values) => el("div", { class: "map" }, lazily(el("div", { class: "plot" }), heat({ caption, corner, rowNames, columnNames: this.range(columns).map(String), low, high, values })));
    const course = this.followed(lines_, metric);
    const maps = course ? known.map(({ line, cells }) => map(shownName(line.label), "after", this.range(line.tasks).map(String), line.tasks, cells.map((row, a) => row.map((s, o) => cell(line, a + 1, s, o + 1)))))
      : [map("After the last task", "method", known.map(({ line }) => shownName(line.label)), tasks, known.map(({ line, cells }) => cells[line.tasks - 1].map((s, o) => cell(line, line.tasks, s, o + 1))))];
    const names = el("p", { class: "note" }, course ? "Rows: after so many tasks. Columns: on which task. " : "Columns: on which task. ", this.group.tasks.slice(0, SMALL).map((name, place) => `${place + 1} is ${name}`).join(", ") + (tasks > SMALL ? ", …" : "") + `. One scale for all, from ${text(low, digits)} to ${text(high, digits)}.`);
    return el("section", {}, el("h3", {}, `${metric.name[0].toUpperCase()}${metric.name.slice(1)} on every task${course ? " after every task" : ""}`), names, el("div", { class: tasks > 6 || !course ? "maps wide" : "maps" }, ...maps));
  }
  changes(lines_, metric) {
    const tasks = this.group.tasks.length;
    if (!this.followed(lines_, metric)) return null;
    const panel = (name, about, take, wanted) => {
      const series = lines_.filter((line) => line.tasks > 1).map((line) => ({ name: shownName(line.label), line, place: line.place, points: this.range(line.tasks - 1).map((x) => ({ x, ...this.over(line, (seed) => take(line, seed, x)) })) }));
      return figure(about, lines({ series, xs: this.range(tasks - 1), label: "task", digits: this.digitsOf(metric), unit: this.unitOf(metric), alt: `${name} by task: ` + series.map((one) => `${one.name} ${text(average(one.points.map((p) => p.mean)), this.digitsOf(metric))} on average`).join(", ") + ".",
        open: (one, p) => this.open(one.line, metric, (after, on) => on === p.x && wanted(one.line, after, on), `${name} of task ${p.x}`) }));
    };
    return el("section", {}, el("h3", {}, "Forgetting and transfer"), legend(lines_), el("div", { class: "pair" },
      metric.better === "less" ? null : panel("Forgetting", "Forgetting: the best value of a task before the end, less its final value.", (line, seed, on) => this.forgotten(line, metric, seed, on), () => true),
      panel("Backward transfer", "Backward transfer: the final value of a task less its value when it was learned.", (line, seed, on) => this.moved(line, metric, seed, on), (line, after, on) => after === on || after === line.tasks)));
  }
  others(lines_) {
    const rest = this.group.metrics.filter((metric) => metric.name !== this.metric && this.followed(lines_, metric));
    if (!rest.length) return null;
    return el("section", {}, el("h3", {}, "The other metrics"), legend(lines_), el("div", { class: "panels large" }, ...rest.map((metric) => figure(`${metric.name}${metric.unit.trim() ? ` (${metric.unit.trim()})` : ""}${metric.better ? `: ${metric.better} is better` : ""}`, this.curveOf(lines_, metric, true)))));
  }
  lambdas(metric) {
    const grids = new Map();
    for (const line of this.matching()) if (line.lam !== null) grids.set(line.part, [...(grids.get(line.part) || []), line]);
    const series = [...grids].filter(([, mine]) => mine.length > 1).map(([part, mine]) => ({ name: part, place: mine[0].place, points: mine.slice().sort((a, b) => a.lam - b.lam).map((line) => ({ x: line.lam, line, ...this.final(line, metric) })) }));
    if (!series.length) return null;
    const xs = [...new Set(series.flatMap((one) => one.points.map((p) => p.x)))].sort((a, b) => a - b);
    return el("section", {}, el("h3", {}, "The weight λ of the past"), legend(series.map((one) => ({ label: one.name, place: one.place }))), figure(`Average ${metric.name} after the last task against λ.`,
      lines({ series, xs, log: xs[0] > 0, label: "λ", digits: this.digitsOf(metric), unit: this.unitOf(metric), alt: "Against lambda: " + series.map((one) => `${one.name} from ${text(one.points[0].mean, 2)} to ${text(one.points[one.points.length - 1].mean, 2)}`).join(", "),
        open: (one, p) => this.open(p.line, metric, (after) => after === p.line.tasks, `${metric.name} after the last task`) })));
  }
}

// A mean with its error and the paper's number, on the scale that all lines share.
function strip(end, line, span) {
  const at = (value) => (4 + 76 * (value - span.low) / (span.high - span.low)).toFixed(1);
  const known = Number.isFinite(end.mean);
  return shape("svg", { class: "strip " + tint(line.place), viewBox: "0 0 84 18", width: 84, height: 18, "aria-hidden": "true" }, shape("path", { class: "grid", d: "M2,9H82" }),
    known && Number.isFinite(end.error) ? shape("path", { class: "line", d: `M${at(end.mean - end.error)},9H${at(end.mean + end.error)}` }) : null,
    line.paper !== null ? shape("path", { class: "paper-mark", d: `M${at(line.paper)},2V16` }) : null,
    known ? shape("path", { class: "mark", d: MARKS[line.place % 8], transform: `translate(${at(end.mean)} 9)` }) : null);
}
