"use strict";
// The page of zg.explore. `page` is its content: columns of lines, places in the sources, and values, by number.

let page;
const state = {panes: [], active: 0, picked: null, program: 0, execution: 0, found: "", theme: ""};

// ---- The content.

async function unpacked() {
    const bytes = Uint8Array.from(atob(document.getElementById("content").textContent), c => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
}

const column = name => page.columns.find(c => c.name === name);

/** The place numbers of a line, from the innermost to the outermost call. */
function chain(place) {
    const numbers = [];
    for (; place >= 0; place = page.places[place][5]) numbers.push(place);
    return numbers;
}

/** Give each column what the page asks of it often: the lines of sources on which its lines depend. */
function prepare() {
    page.lineOf = page.places.map(p => p[0] + ":" + p[1]);
    for (const c of page.columns) {
        if (!c.rows) c.lines = c.lines.map(narrow);
        if (c.rows) c.at = c.rows.map(() => -1);
        let region = -1;
        c.regions = c.lines.map(text => /^\s*(tt\.func|func|cpu\.kernel)\b/.test(text) ? ++region : region);
    }
}

/** How the line `other` of a column is related to the picked one: "same" place, "near" it, or not at all. */
function relation(picked, c, index) {
    const here = sourceLines(column(picked.column), picked.line), there = sourceLines(c, index);
    if (!here.length || !there.length) return "";
    if (here[0] === there[0]) {
        const a = page.places[column(picked.column).at[picked.line]], b = page.places[c.at[index]];
        return !a || !b || a[2] === b[2] || !a[2] || !b[2] ? "same" : "near";
    }
    return here.includes(there[0]) || there.includes(here[0]) ? "near" : "";
}

/** The lines of sources from which a line comes, as "file:line". */
function sourceLines(c, index) {
    if (c.rows) return [c.rows[index].join(":")];
    return chain(c.at[index] ?? -1).map(place => page.lineOf[place]);
}

// ---- Drawing.

function element(tag, attributes = {}, ...children) {
    const node = Object.assign(document.createElement(tag), attributes);
    node.append(...children);
    return node;
}

const PARTS = new RegExp([
    "(?<comment>//.*|(?<=^|\\s)#.*)", '(?<string>"(?:[^"\\\\]|\\\\.)*")', "(?<value>%[\\w.]+)", "(?<block>\\^\\w+)",
    "(?<attribute>@\\w*=?)", "(?<op>(?<=[={] |^\\s+)[a-z_]+(?:\\.[a-z_0-9]+)+)",
].join("|"), "g");

/** A line with half of its indentation: four columns stand side by side. */
const narrow = text => text.replace(/^ +/, spaces => spaces.slice(spaces.length / 2));

/** The nodes of a line of text, in colours; `span` is a range of columns to underline. */
function coloured(text, span) {
    const nodes = [];
    let end = 0;
    const plain = (from, to) => {
        if (!span || span[1] <= from || span[0] >= to) return nodes.push(text.slice(from, to));
        const [a, b] = [Math.max(from, span[0]), Math.min(to, span[1])];
        nodes.push(text.slice(from, a), element("u", {textContent: text.slice(a, b)}), text.slice(b, to));
    };
    for (const match of span ? [] : text.matchAll(PARTS)) {
        const [kind, found] = Object.entries(match.groups).find(([, part]) => part !== undefined);
        plain(end, match.index);
        nodes.push(element("span", {className: kind, textContent: found}));
        end = match.index + found.length;
    }
    plain(end, text.length);
    return nodes;
}

function drawPane(number) {
    const pane = state.panes[number], c = column(pane.name), rows = [];
    const added = new Set(pane.changes ? c.new : []), gone = new Map();
    const before = page.columns[page.columns.indexOf(c) - 1];
    for (const [line, old] of pane.changes && c.gone || []) gone.set(line, [...gone.get(line) ?? [], old]);
    const removed = line => {
        for (const old of gone.get(line) ?? []) {
            rows.push(element("div", {className: "line gone"}, ...coloured(before.lines[old])));
        }
    };
    let file = -1;
    c.lines.forEach((text, line) => {
        removed(line);
        if (c.rows && c.rows[line][0] !== file) {
            file = c.rows[line][0];
            rows.push(element("div", {className: "line file", textContent: page.files[file]}));
        }
        const row = element("div", {className: "line"}, ...coloured(text));
        row.dataset.line = line;
        row.dataset.number = c.rows ? c.rows[line][1] : line + 1;
        if (added.has(line)) row.classList.add("new");
        if (faultsAt(c, line).length) row.classList.add("fault");
        rows.push(row);
    });
    removed(c.lines.length);
    pane.lines.replaceChildren(...rows);
    pane.rows = rows.filter(row => row.dataset.line !== undefined);
    pane.select.value = pane.name;
    pane.toggle.disabled = !c.new;
    pane.toggle.classList.toggle("on", pane.changes);
    mark();
}

/** The notes at a line. */
function faultsAt(c, line) {
    const here = sourceLines(c, line)[0];
    return here === undefined ? [] : page.notes.filter(note => {
        const places = [note.at, ...note.more.map(m => m[1])].filter(at => at >= 0);
        return places.some(at => c.rows ? page.lineOf[at] === here : page.lineOf[at] === here && c.at[line] === at);
    });
}

/** Mark what the picked line came from and what became of it, in every pane; `scroll` brings it into view. */
function mark(picked = state.picked, scroll = false) {
    state.panes.forEach((pane, number) => {
        const c = column(pane.name);
        let first = null;
        pane.rows?.forEach((row, line) => {
            const isPicked = picked !== null && picked.column === pane.name && picked.line === line;
            const kind = picked === null ? "" : relation(picked, c, line);
            row.classList.toggle("picked", isPicked);
            row.classList.toggle("same", kind === "same");
            row.classList.toggle("near", kind === "near");
            if (row.querySelector("u")) row.replaceChildren(...coloured(c.lines[line]));
            if (c.rows && kind) underline(row, c, line, picked);
            if (isPicked || (kind === "same" && first === null)) first = row;
        });
        if (scroll && first && !(number === state.active && visible(first, pane.lines))) {
            first.scrollIntoView({block: "center", inline: "nearest"});
            pane.lines.scrollLeft = 0;
        }
    });
}

function visible(row, box) {
    const [a, b] = [row.getBoundingClientRect(), box.getBoundingClientRect()];
    return a.top >= b.top && a.bottom <= b.bottom;
}

/** Underline the columns of a source line from which the picked line comes. */
function underline(row, c, line, picked) {
    const at = chain(column(picked.column).at[picked.line] ?? -1).find(n => page.lineOf[n] === c.rows[line].join(":"));
    if (at === undefined) return;
    const [, first, from, last, to] = page.places[at];
    if (!from) return;
    // Columns count UTF-8 bytes.
    const characters = bytes => new TextDecoder().decode(new TextEncoder().encode(c.lines[line]).slice(0, bytes)).length;
    row.replaceChildren(...coloured(c.lines[line], [characters(from - 1), last === first ? characters(to - 1) : 1e6]));
}

function pick(number, line) {
    state.active = number;
    state.picked = line === null ? null : {column: state.panes[number].name, line};
    state.panes.forEach((pane, n) => pane.box.classList.toggle("active", n === number));
    mark(state.picked, true);
    drawPanel();
}

// ---- The panel: what is known of the picked line.

function drawPanel() {
    const panel = document.getElementById("panel");
    if (state.picked === null) {
        const keys = "↑ ↓ lines · ← → columns · [ ] model before and after · d changes of a pass · , . executions · " +
            "/ search · t light or dark · Esc nothing";
        panel.replaceChildren(element("section", {}, element("h2", {textContent: "Pick a line"}),
            element("p", {textContent: keys}), ...page.notes.map(noteOf)));
        return;
    }
    const c = column(state.picked.column), line = state.picked.line, text = c.lines[line];
    const sections = [aboutOf(c, line, text)];
    const values = valuesOf(c, line, text);
    if (values) sections.push(values);
    else if (c.values && /^\s*%\w+ : /.test(text)) sections.push(element("section", {},
        element("p", {textContent: `program (${page.programs[state.program].join(", ")}) has no value here, or none that is used`})));
    const types = [...text.matchAll(/(tensor|shared)<[^"<>]*(?:<[^<>]*>)?[^"<>]*"([^"]*)"/g)];
    const banks = c.costs?.[line]?.banks;
    if (banks) sections.push(banksOf(banks));
    if (types.length) sections.push(layoutOf(types[0][0], types[0][2]));
    panel.replaceChildren(...sections);
}

function noteOf(note) {
    const lines = [`${note.kind}: ${note.text}`, ...note.more.map(m => m[0]), note.hint && `hint: ${note.hint}`];
    return element("p", {className: "fault", textContent: lines.filter(Boolean).join(" · ")});
}

function aboutOf(c, line, text) {
    const section = element("section", {className: "about"});
    const name = text.trim().replace(/^%\w+ : .* = (?=[a-z_.]+)/, "").match(/^[a-z_]+(?:\.[a-z_]+)*/)?.[0];
    const title = name in page.documents ? name : c.name;
    section.append(element("h2", {textContent: title}));
    const type = text.match(/^\s*%\w+ : (.*?) = /)?.[1];
    if (type) section.append(element("p", {}, element("code", {textContent: type})));
    if (page.documents[name]) section.append(element("p", {textContent: page.documents[name].split("\n\n")[0]}));
    const places = c.rows ? [] : chain(c.at[line] ?? -1).map(n => `${page.files[page.places[n][0]]}:${page.places[n][1]}`);
    if (places.length) section.append(element("p", {textContent: "from " + places.join(", called from ")}));
    const cost = c.costs?.[line];
    if (cost) {
        const work = Object.entries(cost.work).map(([key, number]) => `${key} ${number}`);
        if (cost.bits) work.push(`${cost.bits} bits an access`);
        section.append(element("p", {textContent: "cost: " + work.join(", ")}));
        section.append(...cost.reasons.map(reason => element("p", {textContent: "why not less: " + reason})));
    }
    section.append(...faultsAt(c, line).map(noteOf));
    return section;
}

/** The values of the names in a line, of a source line those of all ops that come from it. */
function valuesOf(c, line, text) {
    let rows = [];
    if (c.rows) {
        const triton = column("triton");
        triton.lines.forEach((other, index) => {
            if (sourceLines(triton, index)[0] === c.rows[line].join(":")) rows.push(...named(triton, index, other, true));
        });
    } else rows = named(c, line, text, false);
    if (!rows.length) return null;
    const section = element("section", {className: "values"});
    const where = page.programs[state.program].join(", ");
    section.append(element("h2", {textContent: `values in program (${where})`}));
    for (const [label, ids] of rows) {
        const index = Math.min(state.execution, ids.length - 1), value = page.values[ids[index]];
        const facts = [value.shape.length ? `${value.element}[${value.shape.join(", ")}]` : value.element];
        for (const key of ["least", "most", "mean", "true", "nan", "inf", "undefined"]) {
            if (value[key] !== undefined && value.shape.length) facts.push(`${key} ${value[key]}`);
        }
        if (ids.length > 1) facts.push(`execution ${index + 1} of ${ids.length}`);
        section.append(element("div", {}, element("code", {textContent: label}), "  " + facts.join(" · ")), table(value));
    }
    return section;
}

function named(c, line, text, resultsOnly) {
    const values = c.values?.[state.program] ?? {}, seen = new Set(), rows = [];
    const head = text.match(/^\s*(%\w+) : /)?.[1];
    for (const [name] of text.matchAll(/%\w+/g)) {
        if (seen.has(name) || (resultsOnly && name !== head)) continue;
        seen.add(name);
        let at = line; // The line that declares it: this one, or the last one before it in the same function.
        while (at >= 0 && c.regions[at] === c.regions[line] && !(values[at] && name in values[at])) at--;
        if (at < 0 || c.regions[at] !== c.regions[line]) continue;
        const op = text.replace(/^\s*%\w+ : .* = (?=[a-z_.]+)/, "").match(/^[a-z_.]+/)?.[0];
        rows.push([resultsOnly ? `${op}` : name, values[at][name]]);
    }
    return rows;
}

function table(value) {
    const numbers = value.rows.flat().map(Number).filter(Number.isFinite), most = Math.max(...numbers.map(Math.abs), 1e-30);
    return element("table", {}, ...value.rows.map(row => element("tr", {}, ...row.map(text => {
        const cell = element("td", {textContent: text}), share = Math.min(1, Math.abs(Number(text)) / most);
        if (Number.isFinite(share) && share) {
            cell.style.background = `rgba(${Number(text) < 0 ? "215,58,73" : "0,92,197"},${0.04 + 0.3 * share})`;
        } else if (text === "nan" || text.endsWith("?")) cell.style.background = "var(--gone)";
        return cell;
    }))));
}

// ---- Layouts: linear maps over bits. "registers | lanes | warps" of a tensor, places of a buffer.

function layoutOf(type, bases) {
    const shape = [...type.matchAll(/x(\d+)/g)].map(m => Number(m[1])), isShared = type.startsWith("shared");
    const total = shape.reduce((a, b) => a * b, 1), columns = shape.length > 1 ? shape.at(-1) : Math.min(32, total);
    const parts = bases.split("|").map(part => part.trim().split(/\s+/).filter(Boolean).map(Number));
    const owners = new Map(), bits = parts.flat();
    for (let index = 0; index < 2 ** bits.length; index++) {
        let at = 0;
        bits.forEach((basis, bit) => { if (index >> bit & 1) at ^= basis; });
        owners.set(at, [...owners.get(at) ?? [], index]);
    }
    const element_ = type.match(/([a-z]+\d+\w*)[^,]*,\s*"/)?.[1] ?? "f32", bytes = Math.max(1, parseInt(element_.replace(/^\D+/, "")) / 8);
    const sizes = parts.map(part => 2 ** part.length);
    const owner = index => isShared
        ? {bank: Math.floor(index * bytes / 4) % 32, place: index}
        : {register: index % sizes[0], lane: Math.floor(index / sizes[0]) % sizes[1], warp: Math.floor(index / sizes[0] / sizes[1])};
    const rows = Math.min(64, Math.ceil(total / columns)), across = Math.min(64, columns), cell = across <= 32 && rows <= 16 ? 14 : 6;
    const canvas = element("canvas", {width: across * cell, height: rows * cell}), brush = canvas.getContext("2d");
    for (let row = 0; row < rows; row++) {
        for (let at = 0; at < across; at++) {
            const o = owner((owners.get(row * columns + at) ?? [0])[0]);
            brush.fillStyle = isShared ? `hsl(${o.bank * 11.25} 65% 60%)` : `hsl(${o.warp * 47} 60% ${40 + o.lane * 1.3}%)`;
            brush.fillRect(at * cell, row * cell, cell - (cell > 6), cell - (cell > 6));
        }
    }
    const tip = element("div", {id: "tip"});
    canvas.onmousemove = event => {
        const [at, row] = [Math.floor(event.offsetX / cell), Math.floor(event.offsetY / cell)], number = row * columns + at;
        const places = [];
        let rest = number;
        for (const size of [...shape].reverse()) { places.unshift(rest % size); rest = Math.floor(rest / size); }
        const holders = (owners.get(number) ?? []).map(owner).map(o => isShared
            ? `place ${o.place}, bank ${o.bank}` : `warp ${o.warp}, lane ${o.lane}, register ${o.register}`);
        tip.textContent = `[${places.join(", ")}]: ${holders.slice(0, 2).join("; ")}${holders.length > 2 ? ` and ${holders.length - 2} more` : ""}`;
    };
    const kind = isShared ? "banks of shared memory by colour" : "warps by colour, lanes by lightness";
    const part = rows * across < total ? `, the first ${rows}×${across}` : "";
    return element("section", {className: "layout"}, element("h2", {textContent: `layout: ${kind}${part}`}), canvas, tip);
}

/** The wavefronts of an access to shared memory: each bank serves one word in each, for the lanes that want it. */
function wavefronts({addresses, bytes}) {
    const together = Math.max(1, Math.min(addresses.length, Math.floor(128 / Math.max(4, bytes)))), rows = [];
    for (let first = 0; first < addresses.length; first += together) {
        const banks = Array.from({length: 32}, () => new Map());
        for (let lane = first; lane < first + together; lane++) {
            for (let at = addresses[lane] & -4; at < addresses[lane] + bytes; at += 4) {
                const words = banks[at / 4 % 32];
                words.set(at, [...words.get(at) ?? [], lane]);
            }
        }
        const depth = Math.max(...banks.map(words => words.size));
        for (let row = 0; row < depth; row++) {
            rows.push({isExtra: row >= Math.ceil(together * Math.max(4, bytes) / 128),
                       lanes: banks.map(words => [...words.values()][row] ?? [])});
        }
    }
    return rows;
}

function banksOf(banks) {
    const rows = wavefronts(banks), extra = rows.filter(row => row.isExtra).length, cell = 8;
    const canvas = element("canvas", {id: "banks", width: 32 * cell, height: rows.length * cell}), brush = canvas.getContext("2d");
    rows.forEach((row, y) => row.lanes.forEach((lanes, x) => {
        brush.fillStyle = lanes.length ? `hsl(${lanes[0] * 11.25} 65% 60%)` : "rgba(128, 128, 128, 0.15)";
        brush.fillRect(x * cell, y * cell, cell - 1, cell - 1);
        brush.strokeStyle = "#d73a49";
        if (row.isExtra && lanes.length) brush.strokeRect(x * cell + 1, y * cell + 1, cell - 3, cell - 3);
    }));
    const tip = element("div", {className: "tip"});
    canvas.onmousemove = event => {
        const [bank, row] = [Math.floor(event.offsetX / cell), Math.floor(event.offsetY / cell)], lanes = rows[row]?.lanes[bank];
        tip.textContent = lanes?.length ? `bank ${bank}: lane ${lanes.join(", ")}` : `bank ${bank}: no lane`;
    };
    const conflicts = extra ? `${extra} wavefront(s) by bank conflicts, with red edges` : "no bank conflicts";
    return element("section", {className: "layout"},
        element("h2", {textContent: `an access of a warp: 32 banks, ${rows.length} wavefront(s)`}), canvas, tip, element("p", {textContent: conflicts}));
}

// ---- Controls.

function addPane(name) {
    const number = state.panes.length, pane = {name, changes: false};
    pane.select = element("select", {title: "the model or text of this column"});
    pane.select.append(...page.columns.map(c => element("option", {value: c.name, textContent: c.tier === "pass" ? `after ${c.name}` : c.name})));
    pane.select.onchange = () => show(number, pane.select.value);
    const step = (sign, title) => element("button", {textContent: sign < 0 ? "‹" : "›", title, onclick: () => move(number, sign)});
    pane.toggle = element("button", {textContent: "±", title: "what the pass has changed (d)", onclick: () => changes(number)});
    pane.lines = element("div", {className: "lines", tabIndex: 0});
    pane.lines.onclick = event => {
        const row = event.target.closest("[data-line]");
        if (row) pick(number, Number(row.dataset.line));
    };
    pane.lines.onmouseover = event => {
        const row = event.target.closest("[data-line]");
        if (row) mark({column: pane.name, line: Number(row.dataset.line)});
        alike(pane, event.target);
    };
    pane.lines.onmouseleave = () => { mark(); alike(pane, null); };
    pane.box = element("div", {className: "pane"},
        element("div", {}, step(-1, "the model before ([)"), pane.select, step(1, "the model after (])"), pane.toggle), pane.lines);
    state.panes.push(pane);
    document.querySelector("main").append(pane.box);
    drawPane(number);
}

/** Outline a value wherever the same function names it. */
function alike(pane, target) {
    pane.lines.querySelectorAll(".alike").forEach(node => node.classList.remove("alike"));
    if (!target?.classList.contains("value")) return;
    const c = column(pane.name), region = c.regions[target.closest("[data-line]")?.dataset.line];
    pane.lines.querySelectorAll(".value").forEach(node => {
        if (node.textContent === target.textContent && c.regions[node.closest("[data-line]")?.dataset.line] === region) node.classList.add("alike");
    });
}

function show(number, name) {
    state.panes[number].name = name;
    drawPane(number);
    mark(state.picked, true);
}

function move(number, by) {
    const names = page.columns.map(c => c.name), at = names.indexOf(state.panes[number].name) + by;
    if (at >= 0 && at < names.length) show(number, names[at]);
}

function changes(number) {
    state.panes[number].changes = !state.panes[number].changes;
    drawPane(number);
}

function search(text, next) {
    state.found = text;
    let first = null;
    state.panes.forEach((pane, number) => pane.rows.forEach((row, line) => {
        const c = column(pane.name), at = text ? c.lines[line].indexOf(text) : -1;
        if (row.querySelector("mark")) row.replaceChildren(...coloured(c.lines[line]));
        if (at < 0) return;
        const t = c.lines[line];
        row.replaceChildren(t.slice(0, at), element("mark", {textContent: text}), t.slice(at + text.length));
        const isAfter = !next || state.picked === null || number > state.active || (number === state.active && line > state.picked.line);
        if (first === null && isAfter) first = [number, line];
    }));
    if (first && next) pick(...first);
    else if (first) state.panes[first[0]].rows[first[1]].scrollIntoView({block: "center"});
}

function execution(by) {
    const slider = document.getElementById("execution");
    slider.value = Number(slider.value) + by;
    state.execution = Number(slider.value);
    document.getElementById("execution-number").textContent = state.execution + 1;
    drawPanel();
}

function theme() {
    state.theme = {"": "dark", dark: "light", light: ""}[state.theme];
    document.documentElement.className = state.theme;
}

function key(event) {
    if (event.target.tagName === "INPUT" && event.target.type === "search") {
        if (event.key === "Enter") search(event.target.value, true);
        if (event.key === "Escape") event.target.blur();
        return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const pane = state.panes[state.active], last = pane.rows.length - 1;
    const line = state.picked?.column === pane.name ? state.picked.line : -1;
    const across = by => {
        const number = Math.max(0, Math.min(state.panes.length - 1, state.active + by)), there = state.panes[number];
        const same = there.rows.findIndex(row => row.classList.contains("same"));
        pick(number, Math.max(same, 0));
    };
    const actions = {
        ArrowDown: () => pick(state.active, Math.min(last, line + 1)), ArrowUp: () => pick(state.active, Math.max(0, line - 1)),
        ArrowRight: () => across(1), ArrowLeft: () => across(-1), "[": () => move(state.active, -1), "]": () => move(state.active, 1),
        d: () => column(pane.name).new && changes(state.active), ",": () => execution(-1), ".": () => execution(1),
        "/": () => document.getElementById("search").focus(), t: theme, Escape: () => pick(state.active, null),
    };
    actions.j = actions.ArrowDown; actions.k = actions.ArrowUp; actions.h = actions.ArrowLeft; actions.l = actions.ArrowRight;
    if (event.key in actions) {
        event.preventDefault();
        actions[event.key]();
    }
}

function controls() {
    const programs = element("select", {id: "program", title: "the program of the values"});
    programs.append(...page.programs.map((p, n) => element("option", {value: n, textContent: `program (${p.join(", ")})`})));
    programs.onchange = () => { state.program = Number(programs.value); drawPanel(); };
    const lists = page.columns.flatMap(c => (c.values ?? []).flatMap(lines => Object.values(lines).flatMap(Object.values)));
    const most = lists.reduce((a, ids) => Math.max(a, ids.length), 1);
    const slider = element("input", {id: "execution", type: "range", min: 0, max: most - 1, value: 0, disabled: most === 1});
    slider.oninput = () => execution(0);
    const found = element("input", {id: "search", type: "search", placeholder: "search (/)"});
    found.oninput = () => search(found.value, false);
    return element("header", {}, element("b", {textContent: page.title}),
        element("span", {className: "about", textContent: page.about, title: page.about}), programs,
        element("label", {title: "of an op in a loop (, .)"}, "execution ", element("span", {id: "execution-number", textContent: 1}), " ", slider),
        found, element("button", {textContent: "+", title: "one more column", onclick: () => addPane("triton")}),
        element("button", {textContent: "−", title: "one column less", onclick: () => {
            if (state.panes.length > 1) state.panes.pop().box.remove();
            state.active = Math.min(state.active, state.panes.length - 1);
        }}));
}

/** The source line to begin with: one with a note, else the first one that gives a tensor. */
function firstOfInterest() {
    const c = column("source"), triton = column("triton");
    const withNote = c.lines.findIndex((_, line) => faultsAt(c, line).length);
    if (withNote >= 0) return withNote;
    const values = triton.values?.[0] ?? {};
    const isTensor = (text, line) => /^\s*%\w+ : tensor<.* = /.test(text) && values[line];
    const tensors = triton.lines.map((text, line) => isTensor(text, line) ? sourceLines(triton, line).at(-1) : undefined);
    const first = tensors.find(here => here !== undefined);
    const line = c.rows.findIndex(row => row.join(":") === first);
    return line >= 0 ? line : null;
}

async function start() {
    page = await unpacked();
    prepare();
    document.body.append(controls(), element("main"), element("div", {id: "panel"}));
    for (const name of ["source", "triton", column("gpu") ? "gpu" : "cpu", column("ptx") ? "ptx" : "asm"]) addPane(name);
    document.addEventListener("keydown", key);
    pick(0, firstOfInterest());
    document.body.dataset.ready = "yes";
}

start();
