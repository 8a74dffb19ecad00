/** Signs in with the one-time code of the link that `dlq serve` prints. */
const code = /^#code=([0-9a-f]{32})$/.exec(location.hash)?.[1];
const form = document.querySelector("form[data-door]");
if (code && form) {
  history.replaceState(null, "", location.pathname + location.search);
  form.elements.token.value = code;
  form.submit();
}
