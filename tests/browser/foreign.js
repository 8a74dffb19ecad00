() => {
  const found = [];
  const loads = ["href", "src", "action", "formaction", "xlink:href"];
  const tags = /^(iframe|object|embed|base|style|math|audio|video|marquee|frame|animate)$/i;
  const odd = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]/;
  for (const one of document.querySelectorAll("*")) {
    for (const { name, value } of one.attributes) {
      const runs = name.startsWith("on") || ["style", "srcdoc", "accesskey"].includes(name);
      const isElsewhere = loads.includes(name) && new URL(value, location).origin !== location.origin;
      if (runs || isElsewhere) found.push(`${one.tagName} ${name}=${value}`);
    }
    const isInline = one.tagName === "SCRIPT" && !one.src;
    const redirects = one.tagName === "META" && one.httpEquiv;
    if (tags.test(one.tagName) || isInline || redirects) found.push(one.outerHTML);
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { data } = texts.currentNode;
    if (odd.test(data)) found.push(`text ${JSON.stringify(data.slice(0, 80))}`);
  }
  return found.slice(0, 5).map((one) => one.slice(0, 300));
}
