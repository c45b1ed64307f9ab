// Looks at pages as they are drawn, one after the other and each at several widths, and writes what
// is wrong with them into the document, a line each. PAGES and WIDTHS stand before this text.
"use strict";

const found = [];

function luminance(colour) {
  const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = colour.map((c) => linear(c / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function rgba(text) {
  const parts = text.match(/[\d.]+/g)?.map(Number) ?? [];
  return parts.length >= 3 ? { rgb: parts.slice(0, 3), alpha: parts[3] ?? 1 } : null;
}

// The first background behind an element that covers what is behind it.
function background(view, element) {
  for (let e = element; e; e = e.parentElement) {
    const colour = rgba(view.getComputedStyle(e).backgroundColor);
    if (colour && colour.alpha === 1) return colour.rgb;
  }
  return [255, 255, 255];
}

function contrast(a, b) {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}

function name(element) {
  const words = element.textContent.trim().replace(/\s+/g, " ").slice(0, 50);
  return `<${element.tagName.toLowerCase()} class="${element.getAttribute("class") ?? ""}"> ${words}`;
}

function look(doc, view, width, say) {
  for (const details of doc.querySelectorAll("details")) details.open = true;
  const root = doc.documentElement;
  if (root.scrollWidth > width) say(`the page is ${root.scrollWidth} wide`);
  const ownText = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim() !== "");
  for (const e of doc.body.querySelectorAll("*")) {
    if (e.tagName === "title" || e.tagName === "STYLE") continue;
    const box = e.getBoundingClientRect();
    if (box.width === 0 || box.height === 0) continue;
    const scrolls = e.closest(".scroll, .command");
    if (!scrolls && !e.closest("svg") && box.right > width + 1) say(`reaches to ${box.right}: ${name(e)}`);
    if (!ownText(e)) continue;
    const style = view.getComputedStyle(e);
    if (Number(style.opacity) === 0) continue;
    const ink = rgba(e.closest("svg") ? style.fill : style.color);
    const ratio = ink ? contrast(ink.rgb, background(view, e)) : 21;
    if (ratio < 4.5) say(`contrast ${ratio.toFixed(1)}: ${name(e)}`);
  }
  for (const cell of doc.querySelectorAll("td, th")) {
    if (cell.getBoundingClientRect().height > 240) say(`a cell too tall to read: ${name(cell)}`);
  }
  parts(doc, say);
  for (const svg of doc.querySelectorAll("svg")) texts(svg, view, say);
}

// What has a place on the page and nothing to say.
function parts(doc, say) {
  const empty = (text) => ["", "–", "-", "NaN", "undefined"].includes(text.trim());
  for (const figure of doc.querySelectorAll("figure")) {
    if (!figure.querySelector("svg, table, dl, p")) say(`nothing below ${name(figure)}`);
  }
  for (const e of doc.querySelectorAll("h1, h2, h3, dt, dd, figcaption, caption, summary, p, li")) {
    if (e.textContent.trim() === "") say(`empty: ${name(e.parentElement)}`);
  }
  for (const value of doc.querySelectorAll("dd")) {
    if (value.textContent.trim().startsWith("–")) say(`no value: ${name(value.parentElement)}`);
  }
  for (const table of doc.querySelectorAll("table")) {
    const rows = [...table.querySelectorAll("tbody tr:not(.group)")];
    if (rows.length === 0) say(`no rows: ${name(table)}`);
    const heads = [...table.querySelectorAll("thead th")];
    heads.forEach((head, i) => {
      const cells = rows.map((row) => row.children[i]);
      if (cells.every((c) => !c || (empty(c.textContent) && !c.firstElementChild))) {
        say(`a column of nothing, ${head.textContent || i}: ${name(table)}`);
      }
    });
  }
}

// Labels of a chart: none over another, none cut off, none too small.
function texts(svg, view, say) {
  const frame = svg.getBoundingClientRect();
  if (frame.width === 0) return;
  const scale = frame.width / svg.viewBox.baseVal.width;
  const labels = [...svg.querySelectorAll("text")].filter((t) => t.textContent.trim() !== "");
  const boxes = labels.map((t) => t.getBoundingClientRect());
  labels.forEach((label, i) => {
    const size = parseFloat(view.getComputedStyle(label).fontSize) * scale;
    if (size < 8) say(`letters of ${size.toFixed(1)} px: ${name(label)}`);
    const box = boxes[i];
    if (box.left < frame.left - 12 || box.right > frame.right + 12) say(`cut off: ${name(label)}`);
    for (let j = 0; j < i; j += 1) {
      const over = Math.min(box.right, boxes[j].right) - Math.max(box.left, boxes[j].left);
      const down = Math.min(box.bottom, boxes[j].bottom) - Math.max(box.top, boxes[j].top);
      // Boxes of letters have room above and below.
      if (over > 1 && down > 0.4 * box.height) say(`over each other: ${name(label)} and ${name(labels[j])}`);
    }
  });
}

async function draw(title, page, width) {
  const frame = document.createElement("iframe");
  frame.width = width;
  frame.height = 900;
  frame.style.border = "0";
  const loaded = new Promise((resolve) => { frame.onload = resolve; });
  frame.srcdoc = page;
  document.body.append(frame);
  await loaded;
  const view = frame.contentWindow;
  const dark = view.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  look(frame.contentDocument, view, width, (what) => found.push(`${title}, ${width} px, ${dark}: ${what}`));
  frame.remove();
  return dark;
}

async function main() {
  const seen = new Set();
  for (const [title, page] of PAGES) {
    for (const width of WIDTHS) seen.add(`${width} ${await draw(title, page, width)}`);
  }
  const out = document.createElement("pre");
  out.textContent = [...found.map((line) => `FOUND ${line}`), `DRAWN ${[...seen].join(", ")}`].join("\n");
  document.body.replaceChildren(out);
}

main().catch((e) => { document.body.textContent = `FAILED ${e}\n${e.stack}`; });
