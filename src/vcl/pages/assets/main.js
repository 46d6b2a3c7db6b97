// Builds the page from the data beside it.
const BLOCKS = {
  text: (block) => [el("p", {}, block.text)],
  facts: (block) => [el("dl", { class: "facts" }, ...block.items.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, String(value)))))],
  table: (block) => table({ caption: block.caption, columns: block.columns, rows: block.rows.map((row) => row.map(linked)), most: block.most || 50, name: fileName(block.caption), head: block.head !== false }),
  heat: (block) => {
    const seen = block.values.flat().filter((value) => value !== null), turn = block.log ? (v) => Math.log1p(Math.max(0, v)) : (v) => v;
    return [lazily(el("div", { class: "plot map" }), heat({ caption: block.caption, corner: block.corner, rowNames: block.rows, columnNames: block.columns, low: turn(Math.min(...seen)), high: turn(Math.max(...seen)),
      values: block.values.map((row, r) => row.map((value, c) => (value === null ? null : { value: turn(value), word: text(Number(value.toPrecision(3))), open: () => showRows(block.caption, [block.corner, "column", "value"], [[block.rows[r], block.columns[c], value]], fileName(block.caption)) }))) }))];
  },
  lines: (block) => [el("div", { class: block.shares ? "panels large" : null }, block.series.length > 1 ? legend(block.series.map((one, place) => ({ label: one.name, place }))) : null, figure(block.caption, lines({ series: block.series.map((one, place) => ({ name: one.name, place, points: one.points.map(([x, mean, error]) => ({ x, mean: mean ?? NaN, error: error ?? NaN })) })),
    xs: block.xs, label: block.label, alt: block.alt, ...(block.shares ? { small: true, range: { low: 0, high: 1 }, between: { low: 0, high: 1 }, under: (f) => [diagonal(f)] } : {}), open: (one) => showRows(`${block.caption} ${one.name}`, [block.label, "value", "standard error"].slice(0, 2), one.points.map((p) => [p.x, p.mean]), fileName(block.caption)) })))],
  bars: (block) => [el("p", { class: "note" }, block.caption), bars(block.items.map(([name, value, word]) => ({ name, value, word, place: 0 })), block.caption)],
  images: (block) => [el("div", { class: "tiles" }, ...block.items.map((one) => el("figure", {}, el("img", { src: one.source, alt: one.alt }), el("figcaption", {}, one.caption))))],
};

// A cell that names a comparison and a line of it opens that line's rows after the last task.
const views = [];
function linked(cell) {
  if (cell === null || typeof cell !== "object" || !cell.of) return cell;
  return { ...cell, rows: () => {
    const view = views.find((each) => each.group.title === cell.of[0]), line = view && view.group.lines.find((each) => each.label === cell.of[1]);
    if (line) view.open(line, view.metricOf(cell.of[2]), (after) => after === line.tasks, `${cell.of[2]} after the last task`);
  } };
}

function sectionNode(section, place) {
  const id = `section-${place}`;
  return el("section", { class: "group", id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, section.title), section.lead ? el("p", { class: "lead" }, section.lead) : null, el("div", { class: "blocks" }, ...section.blocks.flatMap((block) => BLOCKS[block.type](block))));
}
function contents(data) {
  const places = [...data.sections.map((section, place) => [`section-${place}`, section.title]), ...data.groups.map((group, place) => [`group-${place}`, group.title])];
  const index = document.querySelector("body > nav ul");
  index.replaceChildren(...places.map(([id, title]) => el("li", {}, el("a", { href: "#" + id }, title))));
  index.parentElement.hidden = places.length < 2;
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent), main = document.querySelector("main");
  main.append(...data.sections.map(sectionNode));
  data.groups.forEach((group, place) => {
    views.push(new Comparison(group, place));
    main.append(views[place].node());
  });
  contents(data);
  const theme = document.getElementById("theme");
  theme.addEventListener("click", () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; drawAll(true); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(true));
  document.documentElement.dataset.ready = "yes";
}
start();
