"""
Texts that would run, mislead or break a page if anything printed them as they are.

A text that runs sets `__canary`. Every field of a hostile letter holds one of them.
"""

from typing import Final

_RUN: Final = "globalThis.__canary=1"

SCRIPTS: Final = (
    f"<script>{_RUN}</script>",
    f"</title><script>{_RUN}</script>",
    f"</textarea><script>{_RUN}</script>",
    f"</script><script>{_RUN}</script>",
    f"</template><script>{_RUN}</script>",
    f"</noscript><img src=x onerror={_RUN}>",
    f"--><script>{_RUN}</script>",
    f"]]><script>{_RUN}</script>",
    f"<img src=x onerror={_RUN}>",
    f'"><img src=x onerror="{_RUN}">',
    f"'><img src=x onerror='{_RUN}'>",
    f'" autofocus onfocus="{_RUN}" x="',
    f"' onmouseover='{_RUN}",
    f"<svg onload={_RUN}>",
    f"<svg><animate onbegin={_RUN} attributeName=x dur=1s>",
    f"<svg><use href=\"data:image/svg+xml,<svg id='x' onload='{_RUN}'/>#x\"/>",
    f"<body onload={_RUN}>",
    f'<iframe srcdoc="<script>parent.{_RUN}</script>"></iframe>',
    f"<iframe src=javascript:parent.{_RUN}></iframe>",
    f"<a href=javascript:{_RUN} accesskey=j>click</a>",
    f"javascript:{_RUN}",
    f"JaVaScRiPt&colon;{_RUN}",
    f"data:text/html,<script>{_RUN}</script>",
    f"<form action=javascript:{_RUN}><button>send</button></form>",
    f"<details open ontoggle={_RUN}>",
    f"<video><source onerror={_RUN}></video>",
    f"<input autofocus onfocus={_RUN}>",
    f'<math><mtext><style><img src=x onerror="{_RUN}"></style></mtext></math>',
    f"<style>@import 'javascript:{_RUN}'; * {{ display: none }}</style>",
    '<link rel=stylesheet href="//192.0.2.1/x.css">',
    '<meta http-equiv=refresh content="0;url=//192.0.2.1/">',
    '<base href="//192.0.2.1/">',
    f"<dlq-live hidden><img src=x onerror={_RUN}></dlq-live>",
    f'<div hx-get="/letters" hx-trigger="load" hx-on:load="{_RUN}">',
    f"<button hx-post=/sign-out hx-trigger=load hx-vals='js:{{a: {_RUN}}}'>",
    f"{{{{ cycler.__init__.__globals__ }}}}{{% print({_RUN}) %}}",
    f"${{{_RUN}}} #{{{_RUN}}} <%= {_RUN} %>",
    f"\\u003cscript\\u003e{_RUN}\\u003c/script\\u003e",
    f"&lt;script&gt;{_RUN}&lt;/script&gt;",
    f"<ScRiPt\x0c>{_RUN}</ScRiPt>",
)
"""Would run something, load something, or change the page."""

ODD: Final = (
    "a\u202egnp.exe",  # read from the right
    "\u2066hidden\u2069 and \u200bnothing\ufeff",
    "bell \x07 escape \x1b[31mred\x1b[0m back\x08space nul \x00 end",
    "line one\nline two\r\nline three\u2028four\u2029five\x85six",
    "lone \udc80 surrogate \ud800",
    "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d" * 20,
    "𝕬𝖉𝖒𝖎𝖓 \u0430dmin ﷽",  # looks like a name of somebody else
    "w" * 3_000,
    "=cmd|' /C calc'!A0",
    "%s%n%x {0} %(name)s",
    "../../etc/passwd",
    "'; DROP TABLE letters; --",
)
"""Do not run, but mislead people or break a layout."""

HOSTILE: Final = SCRIPTS + ODD

BODIES: Final = (
    (b"{" + b'"a":{' * 10_000, "application/json"),
    (b"[" * 10_000 + b"]" * 10_000, "application/json"),
    (b'{"amount": 1' + b"0" * 5_000 + b"}", "application/json"),
    (b'{"a": 1, "a": 2, "__proto__": {"x": 1}, "constructor": "</script>"}', "application/json"),
    (b"\xff\xfe\x00\x80 no text \xc3\x28", "text/plain"),
    (b"\x00" * 2_000 + b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"PK\x03\x04" + b"\x00" * 500, "application/zip"),
    (b"<html><script>globalThis.__canary=1</script></html>", "text/html"),
    (b"<svg xmlns='http://www.w3.org/2000/svg' onload='globalThis.__canary=1'/>", "image/svg+xml"),
    (b"\x1f\x8b\x08\x00" + b"\x00" * 300, "application/gzip"),
    (b"", "application/json"),
)
"""Bodies and what they claim to be."""


def large_body(size: int = 10_000_000) -> bytes:
    """Return a JSON body with very many lines, some of them hostile."""
    line = b'{"note": "</script><script>globalThis.__canary=1</script>", "number": %d},'
    count = size // (len(line) + 4)
    return b'{"lines": [' + b"".join(line % n for n in range(count)) + b'0], "end": true}'
