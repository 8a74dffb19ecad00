/** The badges of the navigation; the title and the icon say what is new or regressed. */
class Badges extends HTMLElement {
  static observedAttributes = ["data-alarm"];

  attributeChangedCallback(_name, before, now) {
    if (before === null || before === now) return;
    const title = document.title.replace(/^\(\S+\) /, "");
    document.title = now ? `(${now}) ${title}` : title;
    const icon = document.querySelector("link[rel=icon]");
    if (icon) icon.href = now ? icon.dataset.alarm : icon.dataset.calm;
  }
}

customElements.define("dlq-badges", Badges);
