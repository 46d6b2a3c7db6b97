// What a comparison shows beside its metrics: fits, samples, cost, settings, and what made it.
const inOrder = (task, tasks) => (tasks > 1 ? (task - 1) / (tasks - 1) : 0);
const stepTint = (task, tasks) => "s" + Math.round(7 * inOrder(task, tasks));

function convergence(view, lines_) {
  const panels = [], later = []; // a method with a coreset refits for predictions: these fits are numbered from 2
  for (const line of lines_.filter((each) => each.objective.length)) {
    const kinds = [...new Set(line.objective.map((fit) => fit.fit))];
    for (const kind of kinds) {
      const mine = line.objective.filter((fit) => fit.fit === kind), tasks = Math.max(...line.objective.map((fit) => fit.task));
      const series = mine.map((fit) => {
        const array = (fit.array ||= unpacked(fit.values)), n = fit.epochs.length;
        return { name: `task ${fit.task}`, fit, tint: stepTint(fit.task, tasks), points: fit.epochs.map((x, place) => ({ x, ...view.over(line, (seed) => array[line.seeds.indexOf(seed) * n + place]) })) };
      });
      const seen = series.flatMap((one) => one.points.slice(Math.min(1, one.points.length - 1)).map((p) => p.mean));
      const xs = series.reduce((a, one) => (one.points.length > a.length ? one.points.map((p) => p.x) : a), []);
      const rows = (fit) => view.seedsOf(line).flatMap((seed) => fit.epochs.map((epoch, place) => [line.label, seed, fit.task, fit.fit, epoch, fit.array[line.seeds.indexOf(seed) * fit.epochs.length + place]]));
      (/ \d+$/.test(kind) ? later : panels).push(figure(`${shownName(line.label)}: ${kind}`, lines({ series, xs, label: "epoch", small: true, points: false, range: limits(seen),
        alt: `Objective of ${kind} by epoch, a line for each of ${mine.length} fits. Last: ` + series.map((one) => `${one.name} ${text(one.points[one.points.length - 1].mean)}`).join(", ") + ".",
        open: (one) => showRows(`${shownName(line.label)}: ${kind}, task ${one.fit.task}`, ["method", "seed", "task", "fit", "epoch", "value"], rows(one.fit), fileName(view.group.name, line.label, "objective")) })));
    }
  }
  if (!panels.length && !later.length) return null;
  const key = el("p", { class: "note key" }, "A line for each task, from the first ", el("span", { class: "ramp", "aria-hidden": "true" }, ...[0, 1, 2, 3, 4, 5, 6, 7].map((step) => el("i", { class: "s" + step }))), " to the last; the mean over seeds of the objective of each epoch. Objectives of different methods are different quantities. ", view.group.thinned || "");
  return el("section", {}, el("h3", {}, "Convergence of each fit"), key, el("div", { class: "panels" }, ...panels),
    later.length ? el("details", {}, el("summary", {}, `${later.length} ${later.length > 1 ? "charts" : "chart"} of further fits, such as those of a coreset before a prediction`), el("div", { class: "panels" }, ...later)) : null);
}

const KINDS = [
  ["sd ", "Posterior standard deviation", "The mean standard deviation of a tensor's weights after each task.", null],
  ["kl ", "What each task changed, in nats", "KL(q_t || q_{t-1}) of each tensor of parameters, from the fit to the task.", null],
  ["pruned ", "Units that carry no signal", "The share of units of a weight whose every incoming weight has |mean| < standard deviation.", "share"],
  ["limited", "Variances that were still moving", "The share of log variances that moved as far as the steps allow: they show the start of the fit, not the data.", "share"],
];
function fits(view, lines_) {
  const parts = [];
  for (const [prefix, title, about, kind] of KINDS) {
    const maps = [];
    for (const line of lines_.filter((each) => each.fits.length)) {
      const names = [...new Set(line.fits.flatMap((fit) => Object.keys(fit.measures)))].filter((name) => name.startsWith(prefix));
      if (!names.length) continue;
      const tasks = [...new Set(line.fits.map((fit) => fit.task))].sort((a, b) => a - b);
      const of = (name, task) => {
        const known = line.fits.filter((fit) => fit.task === task && name in fit.measures), fit = known[0];
        return fit ? { fit, ...view.over(line, (seed) => fit.measures[name][line.seeds.indexOf(seed)]) } : summary([]);
      };
      const cells = names.map((name) => tasks.map((task) => of(name, task)));
      const seen = cells.flat().map((s) => s.mean).filter(Number.isFinite), turn = prefix === "kl " ? (v) => Math.log1p(v) : (v) => v;
      const show = (value) => (kind === "share" ? text(100 * value, 0) + " %" : text(Number(value.toPrecision(value < 100 && prefix !== "sd " ? 2 : 3))));
      const open = (name, task, s) => () => showRows(`${shownName(line.label)}: ${name}, task ${task}`, ["method", "seed", "task", "fit", "measure", "value"],
        view.seedsOf(line).map((seed) => [line.label, seed, task, s.fit.fit, name, s.fit.measures[name][line.seeds.indexOf(seed)]]), fileName(view.group.name, line.label, name));
      maps.push(el("div", { class: "map" }, lazily(el("div", { class: "plot" }), heat({ caption: shownName(line.label), corner: "task", rowNames: names.map((name) => name.slice(prefix.length) || name), columnNames: tasks.map(String), low: kind === "share" || prefix === "sd " ? 0 : turn(Math.min(...seen)), high: kind === "share" ? 1 : turn(Math.max(...seen)),
        values: cells.map((row, r) => row.map((s, c) => (s.n ? { value: turn(s.mean), word: show(s.mean), open: open(names[r], tasks[c], s) } : null))) }))));
    }
    if (maps.length) parts.push(el("h4", {}, title), el("p", { class: "note" }, about), el("div", { class: "maps wide" }, ...maps));
  }
  return parts.length ? el("section", {}, el("h3", {}, "The posterior, layer by layer"), ...parts) : null;
}

function pictures(view) {
  const known = view.group.pictures;
  if (!known.length) return null;
  return el("section", {}, el("h3", {}, "Samples of the generators"), el("p", { class: "note" }, "A column for each task's generator, a row for each number of tasks learned; the first seed of each method."),
    el("div", { class: "panels" }, ...known.map((one) => el("figure", {}, el("figcaption", {}, shownName(one.label)), el("img", { class: "samples", src: one.source, alt: `Samples of ${one.label}: ${one.columns} generators after 1 to ${one.rows} tasks` })))));
}

// What is computed now, on a live page.
function goingOn(group) {
  if (!group.going.length) return [];
  return [el("ul", { class: "going" }, ...group.going.map((one) => el("li", {}, el("b", {}, shownName(one.label)),
    one.tasks ? el("progress", { value: one.done, max: one.tasks, "aria-label": `Finished tasks of ${one.label}` }) : null,
    el("span", {}, `${one.done}${one.tasks ? ` of ${one.tasks}` : ""} tasks; ${one.about}`))))];
}

// What opens the parts that a line's time is the sum of; nothing where it is not known what computed it.
function costRows(view, line) {
  if (!line.made.length) return null;
  return () => showRows(`${shownName(line.part)}: seconds of computing`, ["method", "folder", "runs", "device", "engine", "finished", "seconds"],
    line.made.map((one) => [line.part, one.folder, one.runs, one.device, one.engine, one.finished, one.seconds]), fileName(view.group.name, line.part, "cost"));
}

function cost(view) {
  const known = new Map();
  for (const line of view.group.lines) if (line.seconds !== null && !known.has(line.part)) known.set(line.part, line);
  if (!known.size) return null;
  const items = [...known.values()].sort((a, b) => b.seconds - a.seconds);
  const rows = items.flatMap((line) => line.made.map((one) => [shownName(line.part), one.runs, one.device, one.engine, { value: one.seconds, text: duration(one.seconds) }, { value: one.seconds / one.runs, text: duration(one.seconds / one.runs) }, one.finished]));
  return el("section", {}, el("h3", {}, "Time and cost"), bars(items.slice(0, 20).map((line) => ({ name: shownName(line.part), place: line.place, value: line.seconds, word: duration(line.seconds), open: costRows(view, line) })), "Seconds of computing by method"),
    items.length > 20 ? el("p", { class: "note" }, `The 20 longest of ${items.length}.`) : null,
    ...(rows.length ? table({ caption: "What computed each part, and how long it took", columns: [{ name: "method" }, { name: "runs", number: true }, { name: "device" }, { name: "engine" }, { name: "time", number: true }, { name: "a run", number: true }, { name: "finished" }], rows, most: 12, name: fileName(view.group.name, "cost") }) : []));
}

function settings(view, lines_) {
  const parts = new Map();
  for (const line of lines_) if (!parts.has(line.part)) parts.set(line.part, line);
  const each = [...parts.values()].filter((line) => line.settings.length);
  if (!each.length) return null;
  const names = [...new Set(each.flatMap((line) => line.settings.map((pair) => pair[0])))];
  const of = each.map((line) => new Map(line.settings));
  const apart = names.filter((name) => new Set(of.map((known) => known.get(name))).size > 1);
  const columns = [{ name: "setting" }, ...each.map((line) => ({ name: shownName(line.part) }))];
  const make = (chosen, caption) => table({ caption, columns, rows: chosen.map((name) => [name, ...of.map((known) => known.get(name) ?? "–")]), name: fileName(view.group.name, "settings") });
  const same = names.filter((name) => !apart.includes(name));
  return el("section", {}, el("h3", {}, "Settings"), ...(apart.length ? make(apart, "Settings that differ") : []),
    same.length ? el("details", { open: !apart.length }, el("summary", {}, `${same.length} settings that all of them share`), ...table({ caption: "Settings that all of them share", columns: [{ name: "setting" }, { name: "value" }], rows: same.map((name) => [name, of[0].get(name)]) })) : null);
}

function made(view) {
  const seen = new Set(), rows = [];
  for (const line of view.group.lines) {
    if (seen.has(line.part)) continue;
    seen.add(line.part);
    for (const one of line.made) rows.push([shownName(line.part), { value: one.command, node: el("code", {}, one.command) }, one.vcl, one.torch, one.python, one.commit, one.source, one.folder]);
  }
  const notes = [...view.group.notes, ...view.group.unfinished];
  if (!rows.length && !notes.length) return null;
  return el("section", {}, el("h3", {}, "How it was made"), notes.length ? el("ul", { class: "notes" }, ...notes.map((note) => el("li", {}, note))) : null,
    ...(rows.length ? table({ caption: "Commands and versions", columns: ["method", "command", "vcl", "torch", "Python", "commit", "source", "folder"].map((name) => ({ name })), rows, most: 12, name: fileName(view.group.name, "made") }) : []));
}
