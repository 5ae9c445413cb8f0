// A range of time with its buttons, the address that holds it, and the marks in it: what overview and application share.

import { call } from "./api.js";
import { el } from "./dom.js";
import { listMarks } from "./marks.js";
import { address, moves, parse, span, YESTERDAY } from "./timerange.js";

export class Ranged {
  // `prefix`: of the elements' ids; `ranges`: [range, text] of buttons; `standard`, `path`: see timerange.js; `most`: marks listed.
  constructor(board, { prefix = "", ranges, standard, path, most }) {
    Object.assign(this, { board, prefix, standard, path, most, marks: [], asked: 0, range: parse(location.search, standard) });
    const now = () => Math.floor(board.serverNow());
    // Yesterday is moved and scaled as the range that it is.
    const plain = () => (this.range === YESTERDAY ? span(YESTERDAY, now()) : this.range);
    this.byId("ranges").append(...ranges.map(([range, text]) => this.#button(text, () => this.set(range === YESTERDAY ? range : { seconds: range }), { "data-range": range, "data-testid": `range-${range}` })));
    this.byId("moves").append(...moves(plain, now).map(([text, title, range]) => this.#button(text, () => this.set(range()), { title, "aria-label": title, class: "quiet" })));
    addEventListener("popstate", () => { this.range = parse(location.search, standard); this.read(); });
  }

  byId(id) {
    return document.getElementById(this.prefix + id);
  }

  #button(text, act, more) {
    const button = el("button", { type: "button", ...more }, text);
    button.addEventListener("click", act);
    return button;
  }

  set(range) {
    this.range = range;
    history.pushState(null, "", address(range, this.path, this.standard));
    this.read();
  }

  span() {
    return span(this.range, Math.floor(this.board.serverNow()));
  }

  // Read marks and what `more` gives for the query, then have it shown: `shown` gives the seconds until it is read again.
  async request(more, shown) {
    clearTimeout(this.timer);
    this.asked += 1;
    const { asked, range } = this;
    for (const button of this.byId("ranges").children) button.setAttribute("aria-pressed", String(button.dataset.range === String(range.seconds ?? range)));
    const { begin, end } = this.span();
    const query = `begin=${begin}&end=${end}`;
    let wait = 30;
    try {
      const [marks, found] = await Promise.all([call("GET", `/api/v1/marks/?${query}`), more(query)]);
      if (asked !== this.asked) return;
      this.marks = marks;
      wait = shown(found);
      this.list();
    } catch { /* the live badge says that the server is away */ }
    if (asked === this.asked && range.seconds) this.timer = setTimeout(() => this.read(), 1000 * wait);
  }

  // One that is known already counts more than before.
  mark(mark) {
    this.marks = [mark, ...this.marks.filter((each) => each.id !== mark.id)].sort((a, b) => b.at - a.at);
    this.list();
  }

  list() {
    listMarks(this.byId("marks"), this.marks, this.most);
    this.byId("marks-empty").hidden = this.marks.length > 0;
  }
}
