"""Files that pages load: styles and scripts are one file each, and small."""

import re

from deadletter.server.console.assets import bundle, dense, load_assets


def test_scripts_are_bundled_without_imports() -> None:
    text = bundle("app.js")

    assert not re.search(r"^\s*(import|export)\b", text, re.MULTILINE)
    names = re.findall(r'customElements\.define\("([\w-]+)"', text)
    assert {"dlq-live", "dlq-search", "dlq-rows", "dlq-chart", "dlq-copy"} <= {*names}
    assert len(names) == len({*names})
    assert text.count("class Parts ") == 1


def test_comments_and_spaces_are_taken_out_of_styles() -> None:
    made = dense(b"/* why */\na > b { margin: 0.5rem 0; top: calc(100% + 0.25rem); }\n")

    assert made == b"a>b{margin:.5rem 0;top:calc(100% + .25rem)}"


def test_styles_and_scripts_are_small() -> None:
    files = load_assets().files
    scripts = [len(one.packed) for name, one in files.items() if name.endswith(".js")]

    assert sum(scripts) <= 24 * 1024
    assert len(files["console.css"].packed) <= 11 * 1024
