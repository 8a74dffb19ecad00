/**
 * The parts of a page that are loaded anew: one request at a time for each, not more often
 * than it says, fewer while they fail, and never while somebody reads or chooses in it.
 */
const MOST = 5; // how often the pause after a failed request doubles

export class Parts {
  constructor() {
    this.dirty = new Set();
    this.busy = new Set();
    this.last = new WeakMap(); // when a part was loaded
    this.failed = new WeakMap(); // how often in a row it was not
    for (const one of document.querySelectorAll("[data-live] [data-pending]")) {
      this.dirty.add(one.closest("[data-live]"));
    }
  }

  /** Note which parts are about an event; all of them if there is none. */
  mark(name, data) {
    for (const part of document.querySelectorAll("[data-live]")) {
      const { live, about } = part.dataset;
      if (name && !live.split(" ").includes(name)) continue;
      if (name && about && !data.includes(JSON.stringify(about))) continue;
      this.dirty.add(part);
    }
  }

  /** Load the parts that are due. */
  refresh() {
    for (const part of this.dirty) {
      if (!part.isConnected) this.dirty.delete(part);
      else if (this.isDue(part, Date.now())) this.load(part);
    }
  }

  isDue(part, now) {
    const every = Number(part.dataset.every ?? 2) * 1000 * 2 ** (this.failed.get(part) ?? 0);
    return now - (this.last.get(part) ?? 0) >= every && !this.busy.has(part) && isIdle(part);
  }

  load(part) {
    this.dirty.delete(part);
    this.busy.add(part);
    this.last.set(part, Date.now());
    globalThis.htmx.trigger(part, "refresh");
  }

  loaded({ sourceElement: part, response }) {
    if (!this.busy.delete(part)) return;
    const isGood = response && (response.status < 300 || response.status === 304);
    const failed = this.failed.get(part) ?? 0;
    this.failed.set(part, isGood ? 0 : Math.min(failed + 1, MOST));
    if (!isGood) this.dirty.add(part);
    else if (failed) document.getElementById("problem")?.replaceChildren();
    const looked = isGood && part.querySelector("[data-looked]");
    if (looked) looked.textContent = `${new Date().toISOString().slice(11, 19)} UTC`;
  }
}

/** Return whether a part is on the screen and nobody reads or chooses in it. */
function isIdle(part) {
  const box = part.getBoundingClientRect();
  const isSeen = box.bottom >= 0 && box.top <= innerHeight;
  const selected = getSelection();
  const isRead = selected && !selected.isCollapsed && selected.containsNode(part, true);
  return isSeen && !isRead && !document.querySelector("dialog[open]");
}
