"""The typefaces of the site: open fonts from npm, pinned in package-lock.json and served from the site itself.

Where they are not installed the style sheet falls back to what the reader's system has.
"""

from __future__ import annotations

from pathlib import Path

# family in our style sheet → (npm package, file, weights, style); Latin only, other scripts fall back.
FACES = (
    ("Faultbook Serif", "@fontsource-variable/source-serif-4", "source-serif-4-latin-wght-normal.woff2", "200 900", "normal"),
    ("Faultbook Sans", "@fontsource-variable/source-sans-3", "source-sans-3-latin-wght-normal.woff2", "200 900", "normal"),
    ("Faultbook Sans", "@fontsource-variable/source-sans-3", "source-sans-3-latin-wght-italic.woff2", "200 900", "italic"),
    ("Faultbook Mono", "@fontsource/ibm-plex-mono", "ibm-plex-mono-latin-400-normal.woff2", "400", "normal"),
)
FOLDER = "assets/fonts"
STYLE = "assets/faultbook/fonts.css"
EARLY = 2  # of the faces: asked for in the head of each page


def build(node_modules: Path) -> tuple[list[str], dict[str, bytes]]:
    """(what every page preloads, path below the site → content); nothing where a font is missing."""
    sources = [(node_modules / package / "files" / name, package) for _, package, name, _, _ in FACES]
    if not all(path.is_file() for path, _ in sources):
        return [], {}
    files = {f"{FOLDER}/{path.name}": path.read_bytes() for path, _ in sources}
    for path, package in sources:
        files[f"{FOLDER}/LICENSE-{package.split('/')[-1]}"] = (path.parent.parent / "LICENSE").read_bytes()
    rules = [
        f'@font-face{{font-family:"{family}";font-style:{style};font-weight:{weight};font-display:swap;'
        f'src:url("../fonts/{name}") format("woff2")}}'
        for family, _, name, weight, style in FACES
    ]
    files[STYLE] = ("\n".join(rules) + "\n").encode()
    return [f"{FOLDER}/{name}" for _, _, name, _, _ in FACES[:EARLY]], files
