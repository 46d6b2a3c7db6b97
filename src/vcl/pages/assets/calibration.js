// Reliability diagrams: how often predictions were right, by their confidence. A line keeps counts for each seed and bin.
const WHENS = [["end", "after the last task"], ["learned", "when each task was learned"]];

const diagonal = (f) => shape("path", { class: "even", d: `M${f.px(0)},${f.py(0)}L${f.px(1)},${f.py(1)}` });

function calibration(view, lines_) {
  const known = lines_.filter((line) => line.reliability.end);
  if (!known.length) return null;
  const panels = known.map((line) => reliabilityPanel(view, line));
  return el("section", {}, el("h3", {}, "Calibration: how often predictions were right, by their confidence"),
    el("p", { class: "note" }, "Points are bins of test predictions of all tasks after the last task, with one standard error over seeds. Below the dotted diagonal predictions are too confident. The faint line is the same when each task was just learned. Columns at the foot are the share of predictions in each bin, after the last task."),
    el("div", { class: "panels large" }, ...panels));
}

// [bins] of {x, mean, error, count, right, total}: x is the mean confidence, mean the share that is right.
function binned(view, line, when) {
  const array = ((line.bins ||= {})[when] ||= unpacked(line.reliability[when])), bins = array.length / line.seeds.length / 3;
  const at = (seed, bin, which) => array[(line.seeds.indexOf(seed) * bins + bin) * 3 + which];
  const seeds = view.seedsOf(line);
  return Array.from({ length: bins }, (_, bin) => {
    const sum = (which) => seeds.reduce((whole, seed) => whole + at(seed, bin, which), 0);
    const count = sum(0), over = summary(seeds.map((seed) => at(seed, bin, 1) / at(seed, bin, 0)));
    return { bin, bins, x: sum(2) / count, mean: sum(1) / count, error: over.error, count, right: sum(1), total: sum(2),
      rows: seeds.filter((seed) => at(seed, bin, 0)).map((seed) => [line.label, seed, bin + 1, at(seed, bin, 0), at(seed, bin, 1), at(seed, bin, 2) / at(seed, bin, 0)]) };
  });
}

function reliabilityPanel(view, line) {
  const of = Object.fromEntries(WHENS.map(([when]) => [when, binned(view, line, when)])), whole = of.end.reduce((sum, each) => sum + each.count, 0);
  const share = (take) => of.end.reduce((sum, each) => sum + take(each), 0) / whole;
  const told = `right ${text(100 * share((each) => each.right), 1)} %, mean confidence ${text(100 * share((each) => each.total), 1)} %`;
  const series = WHENS.slice().reverse().map(([when, name]) => ({ name, when, place: line.place, faint: when === "learned", points: of[when].filter((each) => each.count).map((each) => ({ ...each, error: when === "learned" ? NaN : each.error })) }));
  const open = (one) => showRows(`${shownName(line.label)}: confidence ${one.name}`, ["method", "seed", "bin", "examples", "right", "mean confidence"], one.points.flatMap((each) => each.rows), fileName(view.group.name, line.label, "calibration", one.when));
  const most = Math.max(...of.end.map((each) => each.count));
  const under = (f, height) => {
    const foot = height - f.bottom;
    return [diagonal(f), shape("g", { class: tint(line.place) }, ...of.end.filter((each) => each.count).map((each) => {
      const left = f.px(each.bin / each.bins), tall = Math.max(1, (each.count / most) * 0.22 * (foot - f.top));
      return shape("rect", { class: "share", x: left + 1, y: foot - tall, width: Math.max(1, f.px((each.bin + 1) / each.bins) - left - 2), height: tall });
    }))];
  };
  const button = el("button", { type: "button", class: "number", title: "Show the rows behind these numbers", onclick: () => open(series[1]) }, told);
  return figure([shownName(line.label), ": ", button], lines({ series, xs: [0, 0.2, 0.4, 0.6, 0.8, 1], between: { low: 0, high: 1 }, range: { low: 0, high: 1 }, label: "confidence", small: true, digits: 3, under, open,
    alt: `${line.label}: ${told}. Share right by confidence: ` + of.end.filter((each) => each.count).map((each) => `${text(each.mean, 2)} at ${text(each.x, 2)}`).join(", ") + "." }));
}
