// Tables that sort by a click or a key on a column's head, and the window that shows the rows behind a number.
//
// A column is {name, number, title}; a row is a list of cells. A cell is a value, or {text, value, node, rows}: what is
// shown, what it sorts by, an element to show instead, and a function that opens the rows behind it.
const valueOf = (cell) => (cell !== null && typeof cell === "object" ? cell.value : cell);
const wordOf = (cell) =>
  cell !== null && typeof cell === "object" && "text" in cell ? cell.text : typeof valueOf(cell) === "number" ? text(valueOf(cell)) : String(valueOf(cell) ?? "–");

function cellNode(cell, column) {
  const style = column.number ? "number" : column.long ? "long" : null;
  if (cell !== null && typeof cell === "object" && cell.node) return el("td", {}, cell.node);
  const word = wordOf(cell), open = cell !== null && typeof cell === "object" && cell.rows;
  const kind = cell !== null && typeof cell === "object" && cell.badge ? el("span", { class: "badge " + cell.badge }, word) : word;
  const shown = open && word !== "–" ? el("button", { type: "button", class: "number", title: "Show the rows behind this number", onclick: open }, word) : kind;
  return el("td", { class: style }, shown);
}

function compare(a, b) {
  const x = valueOf(a), y = valueOf(b);
  const none = (value) => value === null || value === undefined || Number.isNaN(value);
  if (none(x) || none(y)) return none(x) - none(y);
  if (typeof x === "number" && typeof y === "number") return x - y;
  return String(x).localeCompare(String(y), "en", { numeric: true });
}

function table({ caption, columns, rows, order, most, head = true, name, onsort }) {
  let sorted = order || null, all = false;
  const body = el("tbody"), heads = columns.map((column, place) => {
    const button = el("button", { type: "button", class: "sort", title: column.title, onclick: () => turn(place) }, column.name);
    return el("th", { scope: "col", class: column.number && !(head && place === 0) ? "number" : column.plain ? "drawn" : null }, column.plain ? column.name : button);
  });
  const more = el("button", { type: "button", class: "quiet", onclick: () => { all = true; fillBody(); } });
  function turn(place) {
    // The first click on numbers shows the largest first.
    const down = sorted && sorted.place === place ? !sorted.down : Boolean(columns[place].number);
    sorted = { place, down };
    if (onsort) onsort(sorted);
    fillBody();
  }
  function fillBody() {
    const shown = rows.slice();
    if (sorted) {
      const none = (row) => { const value = valueOf(row[sorted.place]); return value === null || value === undefined || Number.isNaN(value); };
      const sign = sorted.down ? -1 : 1;
      shown.sort((a, b) => (none(a) || none(b) ? none(a) - none(b) : sign * compare(a[sorted.place], b[sorted.place])));
    }
    heads.forEach((node, place) => {
      if (sorted && sorted.place === place) node.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      else node.removeAttribute("aria-sort");
    });
    const count = most && !all ? Math.min(most, shown.length) : shown.length;
    body.replaceChildren(...shown.slice(0, count).map((row) => {
      const cells = row.map((cell, place) => cellNode(cell, columns[place]));
      if (head) cells[0] = el("th", { scope: "row" }, ...cells[0].childNodes);
      return el("tr", {}, ...cells);
    }));
    more.hidden = count === shown.length;
    more.textContent = `Show all ${shown.length}`;
  }
  fillBody();
  const whole = el("table", {}, caption ? el("caption", {}, caption) : null, el("thead", {}, el("tr", {}, ...heads)), body);
  const save = name ? el("button", { type: "button", class: "quiet", onclick: () => download(name, columns.map((c) => c.name), rows.map((row) => row.map((cell) => valueOf(cell)))) }, "Download CSV") : null;
  return [el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption || "table" }, whole), el("p", { class: "after" }, more, save)];
}

// The one window for rows.
function showRows(title, columns, rows, file) {
  const old = document.getElementById("rows");
  if (old) old.remove();
  const numbers = columns.map((_, place) => rows.some((row) => typeof row[place] === "number"));
  const values = summary(rows.map((row) => row[row.length - 1]).filter((value) => typeof value === "number"));
  const window_ = el("dialog", { id: "rows", "aria-labelledby": "rows-title" },
    el("form", { method: "dialog" }, el("h2", { id: "rows-title" }, title), el("button", { class: "quiet" }, "Close")),
    el("p", { class: "note" }, `${rows.length} row${rows.length === 1 ? "" : "s"}` + (values.n > 1 ? `; their mean is ${text(values.mean)}.` : ".")),
    ...table({ caption: title, columns: columns.map((name, place) => ({ name, number: numbers[place] })), rows: rows.map((row) => row.map((value) => ({ value, text: typeof value === "number" ? String(value) : value }))), most: 200, head: false }),
    el("p", {}, el("button", { type: "button", onclick: () => download(file, columns, rows) }, "Download these rows as CSV")));
  document.body.append(window_);
  window_.showModal();
}
