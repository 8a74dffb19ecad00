/** The numbers of the navigation, the title and the icon, as the part of the rail says. */
class Badges extends HTMLElement {
  static observedAttributes = ["data-groups", "data-letters", "data-replays"];

  attributeChangedCallback(name, before, text) {
    if (before === null || before === text) return; // the page came with it
    const badge = document.getElementById(`badge-${name.slice(5)}`);
    if (badge) {
      badge.textContent = text;
      badge.hidden = !text;
    }
    if (name === "data-groups") this.mark(text);
  }

  mark(text) {
    const title = document.title.replace(/^\(\d+\+?\) /, "");
    document.title = text ? `(${text}) ${title}` : title;
    const icon = document.querySelector("link[rel=icon]");
    if (icon) icon.href = text ? icon.dataset.alarm : icon.dataset.calm;
  }
}

customElements.define("dlq-badges", Badges);
