// Elements from names and text. Text goes in as text nodes alone, so no name is ever read as markup.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, kids) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...kids.flat().filter((kid) => kid !== null && kid !== undefined));
  return node;
}
const el = (tag, attributes, ...kids) => fill(document.createElement(tag), attributes, kids);
const shape = (tag, attributes, ...kids) => fill(document.createElementNS(SVG, tag), attributes, kids);

// Numbers as people read them; a minus sign of the right width, a dash for none.
function text(value, digits) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  let out;
  if (digits !== undefined) out = value.toFixed(digits);
  else if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3)) out = value.toExponential(2);
  else if (Number.isInteger(value)) out = String(value);
  else out = String(Number(value.toPrecision(4)));
  return (Number(out) === 0 ? out.replace("-", "") : out).replace("-", "−");
}
const plusMinus = (s, digits) => (s.n ? text(s.mean, digits) + (s.n > 1 ? " ± " + text(s.error, digits) : "") : "–");
function duration(seconds) {
  if (!(seconds >= 0)) return "–";
  if (seconds < 100) return text(seconds, seconds < 10 ? 1 : 0) + " s";
  return seconds < 5400 ? text(seconds / 60, 1) + " min" : text(seconds / 3600, 1) + " h";
}

// Mean and standard error over seeds with finite values; the error of one seed is NaN.
function summary(values) {
  const known = values.filter((value) => Number.isFinite(value)), n = known.length;
  const mean = n ? known.reduce((a, b) => a + b, 0) / n : NaN;
  const spread = known.reduce((a, b) => a + (b - mean) ** 2, 0);
  return { mean, error: n > 1 ? Math.sqrt(spread / (n - 1) / n) : NaN, n };
}
const average = (values) => summary(values).mean;

// Numbers that were packed as base64 of little-endian float32 or float64.
function unpacked(packed) {
  const bytes = Uint8Array.from(atob(packed.data), (letter) => letter.charCodeAt(0));
  return packed.size === 4 ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer);
}

// CSV: quotes are doubled. A text that a spreadsheet would take for a formula gets an apostrophe.
function csvCell(value) {
  if (typeof value === "number") return Number.isFinite(value) ? String(value) : "nan";
  const word = value === null || value === undefined ? "" : String(value);
  const safe = /^[=+\-@\t\r]/.test(word) ? "'" + word : word;
  return /[",\n\r]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
}
const csv = (columns, rows) => [columns, ...rows].map((row) => row.map(csvCell).join(",") + "\n").join("");

function download(name, columns, rows) {
  const link = el("a", { href: URL.createObjectURL(new Blob([csv(columns, rows)], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
const fileName = (...words) => words.join("-").replace(/[^A-Za-z0-9.=_-]+/g, "-").slice(0, 80) + ".csv";

// Elements that are made when they come near the screen, or before printing; again when the width changes.
const waiting = new Map();
const near = new IntersectionObserver(
  (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => drawNow(entry.target)),
  { rootMargin: "600px" });
const sized = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const known = waiting.get(entry.target), width = Math.round(entry.contentRect.width);
    if (known && known.width !== null && width && Math.abs(known.width - width) > 2) drawNow(entry.target);
  }
});
function drawNow(node) {
  const known = waiting.get(node);
  if (!known) return;
  near.unobserve(node);
  known.width = Math.round(node.getBoundingClientRect().width) || 640;
  node.replaceChildren(...[known.draw(known.width)].flat());
}
function lazily(node, draw) {
  waiting.set(node, { draw, width: null });
  near.observe(node);
  sized.observe(node);
  return node;
}
function forget(root) {
  for (const node of [...waiting.keys()]) {
    if (!root.contains(node)) continue;
    near.unobserve(node);
    sized.unobserve(node);
    waiting.delete(node);
  }
}
const drawAll = (again) => [...waiting].forEach(([node, known]) => (known.width === null || again) && drawNow(node));
addEventListener("beforeprint", () => drawAll(false));
const dark = () => getComputedStyle(document.documentElement).getPropertyValue("--dark").trim() === "1";
