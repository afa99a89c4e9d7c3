package console_test

import (
	"strings"

	"github.com/chromedp/chromedp"
)

// accessible looks at a page as somebody who does not see it, does not see it well, or has no mouse, and lists what is
// wrong: WCAG 2.2's names and labels (4.1.2, 3.3.2), contrast (1.4.3, 1.4.11), targets (2.5.8), headings (1.3.1) and focus (2.4.7).
const accessible = `(() => {
  const wrong = [];
  const say = (what, el) => wrong.push(what + ": " + el.outerHTML.slice(0, 120));
  const shown = (el) => el.checkVisibility({visibilityProperty: true, opacityProperty: true}) && el.getClientRects().length > 0;
  const hiddenText = (el) => el.closest(".hidden, .skip, thead") && getComputedStyle(el).position === "absolute" || el.closest("[aria-hidden=true]");
  const name = (el) => (el.getAttribute("aria-label") || (el.getAttribute("aria-labelledby") || "").split(" ").map((id) => document.getElementById(id)?.textContent || "").join(" ") ||
    [...(el.labels || [])].map((l) => l.textContent).join(" ") || (el.matches("a, button, summary") ? el.textContent : "")).trim();

  const ids = new Set();
  for (const el of document.querySelectorAll("[id]")) { if (ids.has(el.id)) say("its id is there twice", el); ids.add(el.id); }
  for (const el of document.querySelectorAll("[for], [aria-labelledby], [aria-describedby], [list]")) {
    for (const attr of ["for", "aria-labelledby", "aria-describedby", "list"]) {
      for (const id of (el.getAttribute(attr) || "").split(" ").filter(Boolean)) if (!ids.has(id)) say(attr + " names nothing", el);
    }
  }
  for (const el of document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a[href], summary")) {
    if (shown(el) && !name(el)) say("it has no name", el);
  }
  for (const el of document.querySelectorAll("svg:not([aria-hidden]), img")) {
    if (!el.getAttribute("alt") && !(el.getAttribute("role") === "img" && el.getAttribute("aria-label"))) say("a picture without words", el);
  }
  for (const el of document.querySelectorAll("table")) {
    if (![...el.querySelectorAll("thead th")].every((th) => th.scope === "col")) say("a column without scope", el);
  }
  if (document.querySelectorAll("h1").length !== 1) say("not one h1", document.body);
  if (document.querySelectorAll("main").length !== 1 || !document.documentElement.lang || !document.title) say("no main, language or title", document.body);
  let level = 1;
  for (const el of document.querySelectorAll("h1, h2, h3, h4")) {
    const n = Number(el.tagName[1]);
    if (n > level + 1) say("a heading skips a level", el);
    level = n;
  }

  const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const colour = (text) => { const n = (text.match(/[\d.]+/g) || []).map(Number); return {rgb: n.slice(0, 3), alpha: n.length > 3 ? n[3] : 1}; };
  const behind = (el) => { for (let at = el; at; at = at.parentElement) { const c = colour(getComputedStyle(at).backgroundColor); if (c.alpha === 1) return c.rgb; } return [255, 255, 255]; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const looked = new Set();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const el = node.parentElement;
    if (!node.textContent.trim() || looked.has(el) || !shown(el) || el.closest("svg, script, style, option, datalist, [disabled]") || hiddenText(el)) continue;
    looked.add(el);
    const style = getComputedStyle(el), size = parseFloat(style.fontSize);
    const large = size >= 24 || size >= 18.66 && Number(style.fontWeight) >= 700;
    const r = ratio(colour(style.color).rgb, behind(el));
    if (r < (large ? 3 : 4.5)) say("contrast " + r.toFixed(2), el);
  }
  for (const el of document.querySelectorAll("input:not([type=hidden]):not([type=checkbox]):not([type=radio]), select, button:not(.quiet)")) {
    const r = ratio(colour(getComputedStyle(el).borderTopColor).rgb, behind(el.parentElement));
    if (shown(el) && r < 3 && ratio(colour(getComputedStyle(el).backgroundColor).rgb, behind(el.parentElement)) < 3) say("its edge is hard to see, " + r.toFixed(2), el);
  }

  const phone = innerWidth < 500;
  for (const el of document.querySelectorAll("button, .button, select, summary, nav a, input:not([type=hidden]):not([type=checkbox]):not([type=radio])")) {
    const box = el.getBoundingClientRect();
    if (shown(el) && !el.classList.contains("copy") && (box.height < (phone ? 40 : 24) || box.width < 24)) say("too small to touch, " + box.width.toFixed(0) + " by " + box.height.toFixed(0), el);
  }
  for (const el of document.querySelectorAll("td a, th a, dd a, li a, button.copy, label:has(input[type=checkbox]), label:has(input[type=radio])")) {
    const box = el.getBoundingClientRect();
    if (shown(el) && box.height < (phone ? 24 : 18)) say("too low to touch, " + box.height.toFixed(0), el);
  }

  for (const el of document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary")) {
    if (!shown(el) || el.disabled) continue;
    el.focus({preventScroll: true});
    if (document.activeElement !== el) { say("it takes no focus", el); continue; }
    const style = getComputedStyle(el);
    if (el.matches(":focus-visible") && (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2)) say("its focus is not seen", el);
    if (el.tabIndex > 0) say("it jumps the queue", el);
  }
  document.activeElement?.blur();
  return [...new Set(wrong)];
})()`

// accessible fails the test for what people would trip over on the page that is open.
func (p person) accessible(name string) {
	p.t.Helper()
	wrong, err := chromedp.Run(p.ctx, chromedp.Evaluate[[]string](accessible))
	p.must(err)
	for _, w := range wrong {
		p.t.Errorf("%s: %s", name, w)
	}
}

// tabsThrough goes through a page with the keyboard alone: the first stop is the way past the navigation, and each stop is
// another.
func (p person) tabsThrough(stops int) {
	p.t.Helper()
	const at = `(() => { const el = document.activeElement; return el.outerHTML.slice(0, 80) + "|" + getComputedStyle(el).outlineStyle; })()`
	seen := make(map[string]bool)
	for i := range stops {
		p.does(chromedp.KeyEvent("\t"))
		where, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](at))
		p.must(err)
		if i == 0 && !strings.Contains(where, `class="skip"`) {
			p.t.Errorf("the first stop is %s", where)
		}
		if seen[where] {
			p.t.Errorf("the keyboard comes to %s twice", where)
		}
		seen[where] = true
		if strings.HasSuffix(where, "|none") {
			p.t.Errorf("the focus is not seen at %s", where)
		}
	}
}
