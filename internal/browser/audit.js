// What keeps a page from some of those who want to read it. audit() looks at the
// page as it is; beginTour(), tour() and endTour() at where the tab key leads.

// shownBox is where an element is, null where it is not seen.
function shownBox(e) {
	if (!e.checkVisibility({visibilityProperty: true})) return null;
	const box = e.getBoundingClientRect();
	return box.width > 0 && box.height > 0 ? box : null;
}

function where(e) {
	const text = (e.getAttribute("aria-label") || e.textContent).trim().replace(/\s+/g, " ").slice(0, 40);
	return `<${e.tagName.toLowerCase()}${e.id ? " #" + e.id : ""}${e.getAttribute("class") ? " ." + e.getAttribute("class") : ""}> "${text}"`;
}

// nameOf is what those who hear the page are told an element is.
function nameOf(e) {
	const labels = [...(e.labels || [])].map(l => l.textContent).join(" ");
	const by = (e.getAttribute("aria-labelledby") || "").split(/\s+/).map(id => document.getElementById(id)?.textContent || "").join(" ");
	return (e.getAttribute("aria-label") || by.trim() || labels || (e.matches("input, select, textarea, svg, [role=region], [role=log]") ? "" : e.textContent)).trim();
}

// rgba are a colour's parts from 0 to 1.
function rgba(color) {
	const parts = color.match(/[\d.]+/g).map(Number);
	return [parts[0] / 255, parts[1] / 255, parts[2] / 255, parts[3] ?? 1];
}

var over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);

function contrast(a, b) {
	const luminance = c => [.2126, .7152, .0722].reduce((sum, w, i) => sum + w * (c[i] <= .04045 ? c[i] / 12.92 : ((c[i] + .055) / 1.055) ** 2.4), 0);
	const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
	return (high + .05) / (low + .05);
}

// behind is the colour that an element's text is read on.
function behind(e) {
	const layers = [];
	for (let at = e; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
	return layers.reverse().reduce((below, layer) => over(layer, below), [1, 1, 1, 1]);
}

// texts are the elements that have text of their own that is seen.
function texts() {
	const all = new Set();
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement;
		if (walk.currentNode.data.trim() && shownBox(e) && !e.matches("script, style, noscript, title, .visually-hidden")) all.add(e);
	}
	return [...all];
}

function audit() {
	const faults = [];
	const fault = (what, e) => faults.push(e ? what + ": " + where(e) : what);
	const all = selector => [...document.querySelectorAll(selector)];
	if (!document.documentElement.lang) fault("no lang");
	if (!document.title) fault("no title");
	if (!/width=device-width/.test(document.querySelector("meta[name=viewport]")?.content || "")) fault("no viewport");
	if (/user-scalable=no|maximum-scale/.test(document.querySelector("meta[name=viewport]")?.content || "")) fault("it cannot be made larger");
	for (const one of ["h1", "main"]) if (all(one).length !== 1) fault(`${all(one).length} of ${one}, expected 1`);
	headings(all, fault);
	names(all, fault);
	places(all, fault);
	for (const e of texts()) readable(e, fault);
	drawings(all, fault);
	return [...new Set(faults)];
}

function headings(all, fault) {
	let level = 0;
	for (const h of all("h1,h2,h3,h4,h5,h6").filter(shownBox)) {
		const now = +h.tagName[1];
		if (now > level + 1) fault(`a heading of level ${now} after one of ${level}`, h);
		level = now;
	}
}

function names(all, fault) {
	for (const svg of all("svg")) {
		if (svg.getAttribute("aria-hidden") !== "true" && !(svg.getAttribute("role") === "img" && nameOf(svg))) fault("a drawing without words", svg);
	}
	for (const img of all("img")) if (!img.hasAttribute("alt")) fault("a picture without words", img);
	for (const e of all("a[href], button, input, select, textarea, summary, [tabindex], [role=region]")) if (!nameOf(e)) fault("no name", e);
	for (const e of all("th")) if (!e.scope) fault("a head of a table without scope", e);
	const ids = all("[id]").map(e => e.id);
	for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) fault("the id " + id + " comes twice");
	for (const a of all("a[href^='#']").filter(shownBox)) if (!document.getElementById(a.hash.slice(1))) fault("a link leads nowhere", a);
	for (const e of all("[aria-describedby]")) if (!document.getElementById(e.getAttribute("aria-describedby"))) fault("described by nothing", e);
	for (const e of all("[tabindex]")) if (e.tabIndex > 0) fault("its turn is not its place", e);
}

// places are wrong where something is beyond the page's edge or too small to hit.
function places(all, fault) {
	const wide = document.documentElement.clientWidth;
	if (document.documentElement.scrollWidth > wide) fault(`the page is ${document.documentElement.scrollWidth} wide in ${wide}`);
	const scrolls = e => e.closest("svg") || ["auto", "scroll", "hidden"].includes(getComputedStyle(e).overflowX) || e.parentElement && scrolls(e.parentElement);
	for (const e of all("body *")) {
		const box = shownBox(e);
		if (box && (box.right > wide + 1 || box.left < -1) && !scrolls(e.parentElement)) fault("beyond the edge", e);
	}
	for (const e of all("button, summary, input, nav a")) {
		const box = shownBox(e);
		if (box && box.height < 24) fault(`${box.height.toFixed(0)} pixels high, expected 24`, e);
	}
}

function readable(e, fault) {
	const style = getComputedStyle(e), drawn = e.closest("svg");
	let color = rgba(drawn ? style.fill : style.color), ground = behind(drawn || e);
	if (drawn && style.stroke !== "none" && style.paintOrder.startsWith("stroke")) ground = over(rgba(style.stroke), ground); // its outline
	const ratio = contrast(over(color, ground), ground);
	if (ratio < 4.5) fault(`contrast ${ratio.toFixed(2)}, expected 4.5`, e);
	const size = parseFloat(style.fontSize) * (drawn ? drawn.getScreenCTM().a : 1);
	if (size < 11) fault(`letters of ${size.toFixed(1)} pixels, expected 11`, e);
}

// drawings are wrong where a text is cut by the drawing's edge or lies on another.
function drawings(all, fault) {
	for (const svg of all("svg").filter(shownBox)) {
		const edge = svg.getBoundingClientRect();
		const labels = [...svg.querySelectorAll("text")].map(e => [e, e.getBoundingClientRect()]).filter(([, box]) => box.width > 0);
		labels.forEach(([e, box], i) => {
			if (box.left < edge.left - 1 || box.right > edge.right + 1 || box.top < edge.top - 1 || box.bottom > edge.bottom + 1) fault(`cut in "${nameOf(svg).slice(0, 30)}"`, e);
			for (const [other, its] of labels.slice(i + 1)) {
				const wide = Math.min(box.right, its.right) - Math.max(box.left, its.left), high = Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top);
				if (wide > 1 && high > 3) fault(`"${other.textContent}" on another in "${nameOf(svg).slice(0, 30)}"`, e);
			}
		});
	}
}

var awaited;

// beginTour is how many places the tab key should lead to.
function beginTour() {
	const begin = document.createElement("span"); // the tab key goes on from where the focus is
	begin.id = "tour";
	begin.tabIndex = -1;
	document.body.prepend(begin);
	begin.focus();
	awaited = new Set([...document.querySelectorAll("a[href], button:enabled, input:enabled, summary, [tabindex='0']")].filter(shownBox));
	return awaited.size;
}

// tour says what is wrong with the place that has the focus.
function tour() {
	const e = document.activeElement, style = getComputedStyle(e);
	if (!awaited.delete(e)) return "the focus came twice, or where it does not belong: " + where(e);
	if (!e.matches(":focus-visible") || style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2) return "the focus is not seen: " + where(e);
	if (contrast(rgba(style.outlineColor), behind(e)) < 3) return "the focus is hardly seen: " + where(e);
	const box = e.getBoundingClientRect();
	if (box.bottom < 0 || box.top > innerHeight) return "the focus is out of sight: " + where(e);
	return "";
}

// endTour are the places that the tab key did not lead to.
function endTour() {
	document.getElementById("tour").remove();
	return [...awaited].map(e => "the tab key does not lead to " + where(e));
}
