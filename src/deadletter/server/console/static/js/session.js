/** Says two minutes before its end that the session ends, so that nothing typed is lost. */
const BEFORE = 120_000; // milliseconds
const LONGEST = 2 ** 31 - 1; // that a timer can wait

class Session extends HTMLElement {
  connectedCallback() {
    // The clock of the server counts: that of the browser may be wrong.
    const now = Date.parse(document.documentElement.dataset.now);
    this.at = performance.now() + Date.parse(this.dataset.ends) - now;
    this.wait();
  }

  disconnectedCallback() {
    clearTimeout(this.timer);
  }

  wait() {
    const left = this.at - performance.now();
    if (left <= BEFORE) this.hidden = false;
    if (left <= 0) {
      this.dataset.over = "";
      return;
    }
    const pause = left > BEFORE ? left - BEFORE : left;
    this.timer = setTimeout(() => this.wait(), Math.min(pause, LONGEST));
  }
}

customElements.define("dlq-session", Session);
