/**
 * The live sign. Events of the server say what has changed; the parts of the page that are
 * about it are loaded anew, and never while somebody reads or chooses in them.
 */
const EVENTS = ["act", "letters", "replay"];
const PATIENCE = 5000; // milliseconds without a connection after which the sign says so
const TICK = 500;
const SLOW = 15000; // between two refreshes without events

class Live extends HTMLElement {
  connectedCallback() {
    this.hidden = false;
    this.button = this.querySelector("button");
    this.dirty = new Set();
    this.last = new WeakMap();
    this.isPaused = sessionStorage.getItem("dlq.paused") === "yes";
    this.button.addEventListener("click", () => this.pause(!this.isPaused));
    this.onLook = () => this.look();
    this.onChange = () => this.mark();
    this.onPress = (event) => (this.isPressed = event.type === "pointerdown");
    document.addEventListener("visibilitychange", this.onLook);
    document.addEventListener("dlq:changed", this.onChange);
    document.addEventListener("pointerdown", this.onPress);
    document.addEventListener("pointerup", this.onPress);
    addEventListener("pagehide", () => this.close());
    addEventListener("pageshow", this.onLook);
    this.timer = setInterval(() => this.tick(), TICK);
    this.look();
  }

  disconnectedCallback() {
    this.close();
    clearInterval(this.timer);
    document.removeEventListener("visibilitychange", this.onLook);
    document.removeEventListener("dlq:changed", this.onChange);
  }

  pause(isPaused) {
    this.isPaused = isPaused;
    sessionStorage.setItem("dlq.paused", isPaused ? "yes" : "no");
    this.look();
  }

  /** Listen while the page is visible and not paused; refresh all parts when it is again. */
  look() {
    const isWanted = !document.hidden && !this.isPaused;
    if (isWanted && !this.source) this.open();
    if (!isWanted) this.close();
    this.say();
  }

  open() {
    this.lostAt = Date.now();
    this.source = new EventSource("/api/v1/events");
    this.source.onopen = () => {
      if (this.wasOpen) this.mark();
      this.wasOpen = true;
      this.lostAt = null;
      this.say();
    };
    this.source.onerror = () => {
      this.lostAt ??= Date.now();
    };
    for (const name of EVENTS) {
      this.source.addEventListener(name, (event) => this.mark(name, event.data));
    }
  }

  close() {
    this.source?.close();
    this.source = null;
    this.lostAt = null;
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

  tick() {
    const now = Date.now();
    const isAway = this.lostAt && now - this.lostAt > PATIENCE;
    if (isAway && now - (this.triedAt ?? this.lostAt) > SLOW) {
      this.triedAt = now;
      this.mark();
      if (this.source?.readyState === EventSource.CLOSED) this.reopen();
    }
    this.say();
    if (this.isPaused || document.hidden || this.isPressed) return;
    for (const part of this.dirty) this.refresh(part, now);
  }

  reopen() {
    const since = this.lostAt;
    this.source.close();
    this.open();
    this.lostAt = since;
  }

  refresh(part, now) {
    if (!part.isConnected) {
      this.dirty.delete(part);
      return;
    }
    const every = Number(part.dataset.every ?? 2) * 1000;
    if (now - (this.last.get(part) ?? 0) < every || !isIdle(part)) return;
    this.dirty.delete(part);
    this.last.set(part, now);
    globalThis.htmx.trigger(part, "refresh");
  }

  say() {
    const isAway = this.lostAt && Date.now() - this.lostAt > PATIENCE;
    const state = this.isPaused ? "paused" : isAway ? "away" : "live";
    if (this.button.dataset.state === state) return;
    this.button.dataset.state = state;
    this.button.setAttribute("aria-pressed", String(this.isPaused));
    const since = isAway ? new Date(this.lostAt).toLocaleTimeString() : "";
    const words = { live: "live", paused: "paused", away: `not live since ${since}` };
    this.button.querySelector("span").textContent = words[state];
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

customElements.define("dlq-live", Live);
