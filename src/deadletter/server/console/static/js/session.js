/** Says two minutes before its end that the session ends, so that nothing typed is lost. */
const BEFORE = 120_000; // milliseconds
const LONGEST = 2 ** 31 - 1; // that a timer can wait

class Session extends HTMLElement {
  connectedCallback() {
    // The clock of the server counts: that of the browser may be wrong.
    this.begin(this.dataset.ends, document.documentElement.dataset.now);
  }

  disconnectedCallback() {
    clearTimeout(this.timer);
  }

  begin(ends, now) {
    this.at = performance.now() + Date.parse(ends) - Date.parse(now);
    this.hidden = true;
    delete this.dataset.over;
    clearTimeout(this.timer);
    this.wait();
  }

  wait() {
    const left = this.at - performance.now();
    if (left <= BEFORE) this.hidden = false;
    if (left <= 0) {
      this.dataset.over = "";
      document.dispatchEvent(new Event("dlq:session-over"));
      return;
    }
    const pause = left > BEFORE ? left - BEFORE : left;
    this.timer = setTimeout(() => this.wait(), Math.min(pause, LONGEST));
  }
}

/** Begin anew with a session that ends then, by the clock of the server. */
export function renew(ends, now) {
  document.querySelector("dlq-session")?.begin(ends, now);
}

customElements.define("dlq-session", Session);
