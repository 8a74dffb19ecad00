/**
 * The live sign. Events of the server say what has changed; the parts of the page that are
 * about it are loaded anew, and never while somebody reads or chooses in them.
 */
import { Parts } from "./refresh.js";

const EVENTS = ["act", "letters", "replay"];
const PATIENCE = 5000; // milliseconds without a connection after which the sign says so
const TICK = 500;
const SLOW = 15000; // between two refreshes without events, and of parts that go by the clock

class Live extends HTMLElement {
  connectedCallback() {
    this.hidden = false;
    this.button = this.querySelector("button");
    this.parts = new Parts();
    this.isPaused = kept() === "yes";
    this.button.addEventListener("click", () => this.pause(!this.isPaused));
    this.ended = new AbortController();
    const hear = (name, act, on = document) => on.addEventListener(name, act, { signal: this.ended.signal });
    hear("visibilitychange", () => this.look());
    hear("htmx:after:request", (event) => this.acted(event.detail.ctx));
    for (const name of ["pointerdown", "pointerup", "pointercancel", "pointerover"]) {
      hear(name, (event) => (this.isPressed = event.buttons > 0 && event.type !== "pointercancel"));
    }
    hear("htmx:finally:request", (event) => this.parts.loaded(event.detail.ctx));
    hear("pagehide", () => this.close(), window);
    hear("pageshow", () => this.look(), window);
    this.timer = setInterval(() => this.tick(), TICK);
    this.look();
  }

  disconnectedCallback() {
    this.close();
    clearInterval(this.timer);
    this.ended.abort();
  }

  pause(isPaused) {
    this.isPaused = isPaused;
    keep(isPaused ? "yes" : "no");
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
      this.parts.mark(); // something may have changed since the page was made, or while away
      this.lostAt = null;
      this.say();
    };
    this.source.onerror = () => {
      this.lostAt ??= Date.now();
    };
    for (const name of EVENTS) {
      this.source.addEventListener(name, (event) => this.parts.mark(name, event.data));
    }
  }

  close() {
    this.source?.close();
    this.source = null;
    this.lostAt = null;
  }

  tick() {
    const now = Date.now();
    const isAway = this.lostAt && now - this.lostAt > PATIENCE;
    if (isAway && now - (this.triedAt ?? this.lostAt) > SLOW) {
      this.triedAt = now;
      this.parts.mark();
      if (this.source?.readyState === EventSource.CLOSED) this.reopen();
    }
    if (!this.isPaused && now - (this.clockAt ?? 0) > SLOW) {
      this.clockAt = now;
      this.parts.mark("clock", "");
    }
    this.say();
    if ((this.isPaused && !this.hasActed) || document.hidden || this.isPressed) return;
    this.parts.refresh();
    this.hasActed &&= this.parts.dirty.size > 0;
  }

  /** Show what one has done, also while events are paused, and to those who hear of no acts. */
  acted({ request, response }) {
    if (request.method === "GET" || !response || response.status >= 300) return;
    this.hasActed = true;
    this.parts.mark();
    if (this.source?.readyState === EventSource.CLOSED) this.reopen(); // signed in again
  }

  reopen() {
    const since = this.lostAt;
    this.source.close();
    this.open();
    this.lostAt = since;
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

// A pause is kept for the tab, where the browser allows that.

function kept() {
  try {
    return sessionStorage.getItem("dlq.paused");
  } catch {
    return null;
  }
}

function keep(value) {
  try {
    sessionStorage.setItem("dlq.paused", value);
  } catch {
    // Storage is blocked: the pause lasts for this page.
  }
}

customElements.define("dlq-live", Live);
