"use strict";

// The live page of a run. On each event from /events it fetches the state and
// redraws the parts that are older than the state. It reads events with fetch,
// because an EventSource cannot send the token.

const element = id => document.getElementById(id);
const sleep = ms => new Promise(done => setTimeout(done, ms));
const clock = (ms) => new Date(ms).toLocaleTimeString([], {hourCycle: "h23"});
const needsToken = document.documentElement.dataset.token === "needed";
const tokenKey = "easyrl-control-token";
const silence = 25000; // ms without data until the trainer counts as away; keep-alives come every 10 s
const mostEntries = 500;

let live = false;
let boot = "";     // ID of the trainer's process
let newest = "";   // ETag of an up-to-date part
let fleet = [];
const shownEntries = new Set();

// call fetches path from the trainer. It drops a token that the trainer rejects.
async function call(path, options = {}) {
	const headers = {};
	const token = sessionStorage.getItem(tokenKey);
	if (token) headers.Authorization = "Bearer " + token;
	const answer = await fetch(path, {signal: AbortSignal.timeout(60000), cache: "no-cache", ...options, headers});
	if (answer.status === 401) sessionStorage.removeItem(tokenKey);
	if (!answer.ok) throw new Error(await reason(answer));
	return answer;
}

async function reason(answer) {
	try {
		return (await answer.json()).error.message;
	} catch {
		return "the trainer returned status " + answer.status;
	}
}

// asked shows the token form and resolves when it is submitted.
function asked(why) {
	const form = element("ask");
	if (why) element("why").textContent = why;
	show("asks", "Enter the control token.");
	form.hidden = false;
	element("token").focus();
	return new Promise(done => {
		form.onsubmit = event => {
			event.preventDefault();
			sessionStorage.setItem(tokenKey, element("token").value.trim());
			element("token").value = "";
			form.hidden = true;
			show("begins", "Connecting …");
			done();
		};
	});
}

function show(state, text) {
	live = state === "live";
	const at = element("state");
	text = visible(text);
	if (at.textContent !== text) at.textContent = text;
	at.dataset.state = state;
	document.documentElement.toggleAttribute("data-away", state === "away");
	document.title = (state === "away" ? "disconnected · " : "") + element("name").textContent + " · easyrl";
	drawFleet();
}

// follow reads events while the page is open. It reconnects after failures and asks
// for a token if one is needed.
async function follow() {
	let pause = 1000, since = 0, refused = "";
	for (;;) {
		if (needsToken && !sessionStorage.getItem(tokenKey)) await asked(refused);
		const had = sessionStorage.getItem(tokenKey);
		const watch = new AbortController();
		let alarm;
		const beat = () => {
			clearTimeout(alarm);
			alarm = setTimeout(() => watch.abort(), silence);
		};
		let why = "";
		try {
			beat();
			const events = await call("/events", {signal: watch.signal});
			pause = 1000, since = 0;
			show("live", "Live");
			refresh();
			await hear(events.body.getReader(), beat);
		} catch (fault) {
			if (!(fault instanceof TypeError || fault.name === "AbortError")) why = fault.message;
		}
		clearTimeout(alarm);
		watch.abort();
		if (had && !sessionStorage.getItem(tokenKey)) {
			refused = "Wrong control token: " + why + ".";
			continue;
		}
		since ||= Date.now();
		show("away", `Disconnected since ${clock(since)}: the trainer does not respond${why && " (" + why + ")"}. ` +
			"The values below are the last received. The page reconnects automatically.");
		await sleep(pause);
		pause = Math.min(2 * pause, 10000);
	}
}

// hear reads events until they end. It only triggers refresh, because the state
// repeats their content.
async function hear(reader, beat) {
	const letters = new TextDecoder();
	for (let text = ""; ;) {
		const {done, value} = await reader.read();
		if (done) return;
		beat();
		text += letters.decode(value, {stream: true});
		const end = text.lastIndexOf("\n\n");
		if (end < 0) continue;
		if (text.slice(0, end).includes("event: ") && !document.hidden) refresh();
		text = text.slice(end + 2);
	}
}

// refresh fetches the state, at most twice a second.
let asking = false, again = false;
async function refresh() {
	again = true;
	if (asking) return;
	asking = true;
	while (again) {
		again = false;
		try {
			take(await (await call("/page/state")).json());
		} catch {
			// the next event or timer retries, and follow shows a lost connection
		}
		await sleep(500);
	}
	asking = false;
}

// take shows a state from the trainer.
function take(state) {
	if (boot && boot !== state.boot) addEntry({kind: "instance", time: Date.now(), text: "the trainer restarted"});
	boot = state.boot;
	newest = `"${state.boot}-${state.told}"`;
	element("name").textContent = visible(state.name);
	element("extent").textContent = visible(state.extent);
	element("shown").hidden = false;
	if (live) document.title = visible(state.name) + " · easyrl";
	drawTiles(element("about"), state.about || []);
	drawTiles(element("now"), state.glance || []);
	for (const e of state.log || []) addEntry(e);
	fleet = state.instances;
	drawFleet();
	tick();
}

// drawTiles shows labels with values.
function drawTiles(at, tiles) {
	at.replaceChildren(...tiles.map(tile => {
		const box = make("div");
		if (tile.name) box.title = visible(tile.name);
		box.append(make("dt", tile.label), make("dd", tile.value));
		return box;
	}));
}

// acts reports whether a character controls, reorders or hides text. Marks of digits do not.
const acts = c => /(?![\n\t])[\p{Cc}\p{Cf}\u2028\u2029]/u.test(c) &&
	!/[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u{110bd}\u{110cd}]/u.test(c);

// joined reports whether a joiner next to a character may be legitimate, as in emoji.
const joined = c => c !== undefined && c > "\x7f" && c !== "\ufffd" && !/[\s\p{Cs}]/u.test(c) && !acts(c);

// visible shows characters that act as escapes such as \x1b, like the trainer's other pages.
const visible = text => [...String(text)].map((c, i, all) => {
	if (!acts(c) || "\u200c\u200d".includes(c) && joined(all[i - 1]) && joined(all[i + 1])) return c;
	const code = c.codePointAt(0), hex = code.toString(16);
	const letter = {7: "a", 8: "b", 11: "v", 12: "f", 13: "r"}[code];
	if (letter) return "\\" + letter;
	if (code < 0x80) return "\\x" + hex.padStart(2, "0");
	return code > 0xffff ? "\\U" + hex.padStart(8, "0") : "\\u" + hex.padStart(4, "0");
}).join("");

function make(tag, text = "") {
	const e = document.createElement(tag);
	e.textContent = visible(text);
	return e;
}

// addEntry prepends an entry to the log unless it is already shown.
function addEntry(e) {
	const key = e.kind === "warning" ? e.text : `${boot}-${e.n}-${e.time}`;
	if (shownEntries.has(key)) return;
	shownEntries.add(key);
	const line = make("li"), list = element("entries");
	line.className = e.kind;
	if (e.time) {
		const at = make("time", clock(e.time));
		at.dateTime = new Date(e.time).toISOString();
		line.append(at);
	}
	if (e.kind === "warning") line.append(make("b", "Warning "));
	line.append(visible(e.text));
	list.prepend(line);
	while (list.children.length > mostEntries) list.lastChild.remove();
	list.hidden = false;
	element("nolog").hidden = true;
}

// drawFleet fills the table of instances. It reuses rows, so that a focused button
// keeps the focus.
function drawFleet() {
	const body = element("instances").tBodies[0], all = fleet || [];
	element("nofleet").hidden = all.length > 0;
	element("instances").parentElement.hidden = all.length === 0;
	const rows = new Map([...body.rows].map(row => [row.dataset.id, row]));
	for (const m of all) {
		let row = rows.get(m.id);
		rows.delete(m.id);
		if (!row) body.append(row = newRow(m));
		const cells = [visible(m.state), m.version || "–", m.requests, m.responses, m.served, m.failed, m.tokens,
			m.busy_s.toFixed(1) + " s"];
		cells.forEach((text, i) => {
			if (typeof text === "number") text = text.toLocaleString("en");
			if (row.cells[i + 1].firstChild.data !== text) row.cells[i + 1].firstChild.data = text;
		});
		const fault = row.querySelector(".fault");
		fault.textContent = visible(m.fault || "");
		const [drain, remove] = row.querySelectorAll("button");
		drain.hidden = remove.hidden = !m.url; // embedded instances cannot be removed
		drain.disabled = !live || ["DRAINING", "DRAINED", "RETIRED"].includes(m.state);
		remove.disabled = !live;
	}
	for (const gone of rows.values()) gone.remove();
}

function newRow(m) {
	const row = make("tr"), head = make("th", m.id);
	row.dataset.id = m.id;
	head.scope = "row";
	row.append(head);
	const names = [...element("instances").tHead.rows[0].cells].slice(1, 9);
	for (const name of names) {
		const cell = make("td", " ");
		cell.dataset.name = name.textContent; // shown next to the value on narrow screens
		row.append(cell);
	}
	const fault = make("small");
	fault.className = "fault";
	row.cells[1].append(fault);
	const last = make("td");
	last.append(button("Drain", m.id, "POST", "/drain"), button("Remove", m.id, "DELETE", "", true));
	row.append(last);
	return row;
}

// button makes a button that changes an instance. If asks is set, it needs a second
// click within 5 s.
function button(text, id, method, action, asks = false) {
	const b = make("button", text);
	const name = words => {
		b.textContent = words;
		b.setAttribute("aria-label", words + " " + visible(id));
	};
	let sure = 0;
	const calm = () => {
		clearTimeout(sure);
		sure = 0;
		b.classList.remove("sure");
		name(text);
	};
	name(text);
	b.type = "button";
	b.onclick = async () => {
		if (asks && !sure) {
			name("Really " + text.toLowerCase() + "?");
			b.classList.add("sure");
			sure = setTimeout(calm, 5000);
			return;
		}
		calm();
		const done = element("done");
		done.textContent = `${text} ${visible(id)} …`;
		try {
			await call("/instances/" + encodeURIComponent(id) + action, {method});
			done.textContent = `${text} ${visible(id)}: done.`;
		} catch (fault) {
			done.textContent = `${text} ${visible(id)}: ${visible(fault.message)}`;
		}
		refresh();
	};
	return b;
}

const parts = [...document.querySelectorAll("[data-part]")].map(at =>
	({at, path: "/page/" + at.dataset.part, every: 1000 * at.dataset.every, tag: "", next: 0}));

// tick redraws parts that are older than the state, each at most once per its
// interval, while the page is visible.
function tick() {
	if (!live || document.hidden) return;
	for (const p of parts) {
		if (p.tag !== newest && Date.now() >= p.next && !reads(p.at)) draw(p);
	}
}

// reads reports whether the user has selected text in a part or points at a value.
function reads(at) {
	const selection = getSelection();
	return !selection.isCollapsed && at.contains(selection.anchorNode) ||
		at.querySelector(".hits > g:hover, .tokens i:hover") !== null;
}

async function draw(p) {
	p.next = Infinity;
	try {
		const answer = await call(p.path);
		const tag = answer.headers.get("ETag"), html = await answer.text();
		if (tag !== p.tag) replace(p.at, html);
		p.tag = tag;
	} catch (fault) {
		if (live && p.tag === "") p.at.textContent = visible(fault.message);
	}
	p.next = Date.now() + p.every;
}

// replace puts new HTML into a part and restores open details, scroll positions and
// focus. A timeline strip starts at its end and stays there unless scrolled away.
function replace(at, html) {
	const can = "a, summary, [tabindex]";
	const open = [...at.querySelectorAll("details")].map(d => d.open);
	const scrolled = [...at.querySelectorAll(".strip, .wide")].map(s =>
		s.matches(".strip") && s.scrollLeft + s.clientWidth > s.scrollWidth - 2 ? 1e9 : s.scrollLeft);
	const focus = [...at.querySelectorAll(can)].indexOf(document.activeElement);
	at.innerHTML = html; // the trainer escapes all text, and the page's policy blocks scripts in it
	for (const link of document.querySelectorAll("nav a")) link.hidden = !document.querySelector(link.hash);
	at.querySelectorAll("details").forEach((d, i) => { d.open = open[i] ?? d.open; });
	at.querySelectorAll(".strip, .wide").forEach((s, i) => {
		s.scrollLeft = scrolled[i] ?? (s.matches(".strip") ? 1e9 : 0);
	});
	if (focus >= 0) at.querySelectorAll(can)[focus]?.focus({preventScroll: true});
}

setInterval(tick, 500);
setInterval(() => { if (live && !document.hidden) refresh(); }, 5000);
document.addEventListener("visibilitychange", () => { if (live && !document.hidden) refresh(); });
follow();
