"""One self-contained page from a saved ledger: scripts, styles and data in a single
file that loads nothing and opens from disk.

What comes from the ledger stands in the page as JSON in which no character can end the
element or start another; scripts put it into the page as text, never as markup. The
page's own policy lets no other script run than those named by their hashes.
"""

import base64
import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

LIBRARIES = ("d3", "dagre")
SCRIPTS = (
    "dom", "ledger", "program", "tables", "timeline", "run", "diff", "programs",
    "groups", "drawing", "graph", "replay", "replay_view", "tabs",
)  # fmt: skip
_SLOT = re.compile(r"<!-- slot: (\w+) -->")
_UNSAFE = re.compile("[<>&\u2028\u2029]")


def page(saved: str) -> str:
    """The page of `saved`, the text that `saved.dump` wrote."""
    parts = _slots(saved)
    return _SLOT.sub(lambda slot: parts[slot[1]], _static("page.html"))


def _slots(saved: str) -> dict[str, str]:
    scripts = [_library(name) for name in LIBRARIES]
    scripts += [_static(f"{name}.js") for name in SCRIPTS]
    style = _static("page.css")
    return {
        "policy": _policy(scripts, style),
        "style": f"<style>{style}</style>",
        "data": f'<script type="application/json" id="ledger">{_data(saved)}</script>',
        "scripts": "\n".join(f"<script>{s}</script>" for s in scripts),
    }


def _policy(scripts: list[str], style: str) -> str:
    allowed = " ".join(map(_hash, scripts))
    policy = f"default-src 'none'; script-src {allowed}; style-src {_hash(style)}"
    return f'<meta http-equiv="Content-Security-Policy" content="{policy}">'


def _hash(text: str) -> str:
    return (
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    )


def _data(saved: str) -> str:
    """The ledger without what the page does not show, safe within an element.

    Not-a-number and infinity, which JSON in a browser has not, become null.
    """
    data: dict[str, Any] = json.loads(saved, parse_constant=lambda _: None)
    data.pop("metrics", None)
    text = json.dumps(data, separators=(",", ":"))
    return _UNSAFE.sub(lambda c: f"\\u{ord(c[0]):04x}", text)


def _library(name: str) -> str:
    return f"/*!\n{_static(f'{name}.LICENSE')}*/\n{_static(f'{name}.min.js')}"


@cache
def _static(name: str) -> str:
    return (files(__package__) / "static" / name).read_text(encoding="utf-8")
