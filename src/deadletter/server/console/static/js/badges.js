/** The badges of the navigation; the title of the page counts what is new or regressed. */
class Badges extends HTMLElement {
  static observedAttributes = ["data-alarm"];

  attributeChangedCallback(_name, before, now) {
    if (before === null || before === now) return;
    const title = document.title.replace(/^\(\S+\) /, "");
    document.title = now ? `(${now}) ${title}` : title;
  }
}

customElements.define("dlq-badges", Badges);
