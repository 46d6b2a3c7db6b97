// Charts as SVG in the width that there is. Colours are classes, so that light, dark and print each have their own.
const MARKS = [
  "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z", "M-3.6,-3.6h7.2v7.2h-7.2z", "M0,-4.6l4.4,7.8h-8.8z", "M0,-4.8l4,4.8l-4,4.8l-4,-4.8z",
  "M0,4.6l4.4,-7.8h-8.8z", "M-1.6,-4.4h3.2v2.8h2.8v3.2h-2.8v2.8h-3.2v-2.8h-2.8v-3.2h2.8z",
  "M-4.2,-2l2.2,-2.2l2,2l2,-2l2.2,2.2l-2,2l2,2l-2.2,2.2l-2,-2l-2,2l-2.2,-2.2l2,-2z",
  "M0,-5l1.4,3.2l3.5,.3l-2.6,2.3l.8,3.4l-3.1,-1.8l-3.1,1.8l.8,-3.4l-2.6,-2.3l3.5,-.3z",
];
const tint = (place) => "c" + (place % 8) + (place >= 8 ? " dashed" : "");
const swatch = (place) => shape("svg", { class: "swatch " + tint(place), viewBox: "-12 -6 24 12", "aria-hidden": "true" },
  shape("path", { class: "line", d: "M-12,0h24" }), shape("path", { class: "mark", d: MARKS[place % 8] }));

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= rough * 0.999) || power;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9 * step; at += step) found.push(Math.abs(at) < step * 1e-6 ? 0 : at);
  return { found, digits: Math.max(0, Math.min(6, -Math.floor(Math.log10(step) + 1e-9) + (step / power === 2.5 ? 1 : 0))) };
}

// A frame with axes: x and y are {low, high, log, ticks, label}; returns the drawing and the maps from values to places.
function frame(width, height, x, y, alt, small) {
  const left = small ? 42 : 50, right = 12, top = 8, bottom = small ? 38 : 40;
  const turned = x.log ? Math.log10 : (value) => value;
  const span = turned(x.high) - turned(x.low) || 1;
  const px = (value) => left + ((turned(value) - turned(x.low)) / span) * (width - left - right);
  // What lies outside of the limits is drawn at the edge.
  const py = (value) => Math.min(height - bottom, Math.max(top, height - bottom - ((value - y.low) / (y.high - y.low || 1)) * (height - top - bottom)));
  const svg = shape("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": alt });
  const marks = ticks(y.low, y.high, small ? 3 : 5);
  for (const at of marks.found) {
    svg.append(shape("path", { class: "grid", d: `M${left},${py(at)}H${width - right}` }),
      shape("text", { class: "tick", x: left - 6, y: py(at) + 4, "text-anchor": "end" }, Math.abs(at) >= 1e4 ? text(at / 1000) + "k" : text(at, marks.digits)));
  }
  const room = Math.max(1, Math.floor((width - left - right) / (small ? 26 : 34)));
  const round = x.ticks.length > 12 && !x.log ? ticks(x.ticks[0], x.ticks[x.ticks.length - 1], small ? 4 : 8).found.filter(Number.isInteger) : x.ticks;
  const every = Math.max(1, Math.ceil(round.length / room));
  round.forEach((at, place) => {
    if (place % every) return;
    svg.append(shape("text", { class: "tick", x: px(at), y: height - bottom + 16, "text-anchor": "middle" }, text(at)));
  });
  svg.append(shape("path", { class: "axis", d: `M${left},${height - bottom}H${width - right}` }),
    shape("text", { class: "label", x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, x.label));
  return { svg, px, py, left, right, top, bottom };
}

function limits(values, least) {
  let low = Infinity, high = -Infinity;
  for (const value of values) if (Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low > high) return { low: 0, high: 1 };
  const pad = Math.max(0.06 * (high - low), least || 1e-6 * Math.max(1, Math.abs(high)));
  return { low: low - pad, high: high + pad };
}

// Series of points {x, mean, error, seeds}, with bands of one standard error. ``marks`` are dashes, such as the paper's.
function lines({ series, marks = [], xs, label, log, small, digits, alt, unit = "", open, range, points = true, under, between }) {
  return (width) => {
    const height = Math.round(small ? Math.min(190, Math.max(150, width * 0.6)) : Math.min(380, Math.max(240, width * 0.5)));
    const every = series.flatMap((one) => one.points.flatMap((p) => [p.mean, p.mean - (p.error || 0), p.mean + (p.error || 0)]));
    const y = range || limits([...every, ...marks.map((mark) => mark.value)]);
    const low = xs.length ? Math.min(...xs) : 1, high = xs.length ? Math.max(...xs) : 1, unitX = (high - low) || 1;
    const room = marks.length ? 0.07 : 0.02;
    const x = between || (log ? { low: low / 1.3, high: high * 1.3, log } : { low: low - 0.03 * unitX, high: high + room * unitX });
    const f = frame(width, height, { ...x, ticks: xs, label }, y, alt, small);
    if (under) f.svg.append(...under(f, height));
    const tip = el("output", { class: "tip", hidden: true });
    const targets = [];
    for (const one of series) {
      const known = one.points.filter((p) => Number.isFinite(p.mean));
      if (!known.length) continue;
      const group = shape("g", { class: (one.tint || tint(one.place)) + (one.faint ? " faint" : "") });
      const banded = known.filter((p) => Number.isFinite(p.error));
      if (banded.length > 1) {
        const up = banded.map((p) => `${f.px(p.x)},${f.py(p.mean + p.error)}`), down = banded.map((p) => `${f.px(p.x)},${f.py(p.mean - p.error)}`).reverse();
        group.append(shape("polygon", { class: "band", points: [...up, ...down].join(" ") }));
      } else for (const p of banded) group.append(shape("path", { class: "line", d: `M${f.px(p.x)},${f.py(p.mean - p.error)}V${f.py(p.mean + p.error)}` }));
      group.append(shape("path", { class: "line", d: known.map((p, place) => `${place ? "L" : "M"}${f.px(p.x).toFixed(1)},${f.py(p.mean).toFixed(1)}`).join("") }));
      for (const p of known) {
        if ((points && !one.faint || known.length === 1) && known.length <= 40) group.append(shape("path", { class: "mark", d: MARKS[(one.place || 0) % 8], transform: `translate(${f.px(p.x).toFixed(1)} ${f.py(p.mean).toFixed(1)})${small ? " scale(.75)" : ""}` }));
        targets.push({ one, p, x: f.px(p.x), y: f.py(p.mean) });
      }
      f.svg.append(group);
    }
    for (const mark of marks) {
      const from = width - f.right - 0.05 * (width - f.left - f.right);
      f.svg.append(shape("g", { class: tint(mark.place) }, shape("path", { class: "paper", d: `M${from},${f.py(mark.value)}H${width - f.right}` })));
    }
    const nearest = (event) => {
      const box = f.svg.getBoundingClientRect(), scale = width / box.width;
      const at = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
      let best = null, least = 900;
      for (const each of targets) {
        const far = (each.x - at[0]) ** 2 + (each.y - at[1]) ** 2;
        if (far < least) { least = far; best = each; }
      }
      return best;
    };
    f.svg.addEventListener("pointermove", (event) => {
      const found = nearest(event);
      tip.hidden = !found;
      f.svg.classList.toggle("pointing", Boolean(found && open));
      if (!found) return;
      tip.textContent = `${found.one.name}, ${label} ${text(found.p.x)}: ${plusMinus({ ...found.p, n: Number.isFinite(found.p.error) ? 2 : 1 }, digits)}${unit}`;
      tip.style.left = Math.min(found.x + 10, Math.max(0, width - 190)) + "px";
      tip.style.top = Math.max(0, found.y - 34) + "px";
    });
    f.svg.addEventListener("pointerleave", () => (tip.hidden = true));
    if (open) f.svg.addEventListener("click", (event) => { const found = nearest(event); if (found) open(found.one, found.p); });
    return [f.svg, tip];
  };
}

// Horizontal bars {name, place, value, word, open}; the names and numbers are text, so this is a list.
function bars(items, alt) {
  const most = Math.max(...items.map((item) => item.value).filter(Number.isFinite), 1e-12);
  return el("ul", { class: "bars", "aria-label": alt }, ...items.map((item) => {
    const bar = el("span", { class: "bar" + (item.place === undefined ? "" : " " + tint(item.place)), "aria-hidden": "true" });
    bar.style.width = Math.max(0.4, (100 * Math.max(0, item.value)) / most) + "%";
    const word = item.open ? el("button", { type: "button", class: "number", onclick: item.open }, item.word) : el("span", { class: "number" }, item.word);
    return el("li", {}, el("span", { class: "name" }, item.name), el("span", { class: "track" }, bar), word);
  }));
}

// A colour for a share from 0 to 1, and one that can be read on it. Dark pages go from dark to light.
const RAMPS = { light: [[241, 246, 250], [131, 190, 224], [0, 88, 140]], dark: [[31, 40, 50], [0, 96, 150], [178, 222, 250]] };
function ramp(share) {
  const [a, b, c] = RAMPS[dark() ? "dark" : "light"], s = Math.min(1, Math.max(0, share)) * 2;
  const mix = (one, other, at) => one.map((value, place) => Math.round(value + (other[place] - value) * at));
  const rgb = s < 1 ? mix(a, b, s) : mix(b, c, s - 1);
  const linear = rgb.map((value) => { const v = value / 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  const light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return { back: `rgb(${rgb})`, ink: light > 0.179 ? "#000" : "#fff" };
}

// A heat map as a table whose cells are numbers: ``values[row][column]`` is {value, word, open} or null.
function heat({ caption, corner, rowNames, columnNames, values, low, high }) {
  return () => {
    const share = (value) => (high > low ? (value - low) / (high - low) : 0.5);
    const head = el("tr", {}, el("th", { scope: "col" }, corner), ...columnNames.map((name) => el("th", { scope: "col" }, name)));
    const body = values.map((row, place) => el("tr", {}, el("th", { scope: "row" }, rowNames[place]), ...row.map((cell) => {
      if (!cell || !Number.isFinite(cell.value)) return el("td", { class: "none" });
      const shown = cell.open ? el("button", { type: "button", onclick: cell.open, title: "Show the rows behind this number" }, cell.word) : el("span", {}, cell.word);
      const { back, ink } = ramp(share(cell.value));
      shown.style.background = back;
      shown.style.color = ink;
      return el("td", {}, shown);
    })));
    return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
      el("table", { class: "heat" }, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, ...body)));
  };
}
