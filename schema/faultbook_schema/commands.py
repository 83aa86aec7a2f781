"""`faultbook check`, `faultbook new`, `faultbook compile`: found by the CLI through entry points."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .compiler import write_catalogue
from .loader import load_kb
from .problems import InvalidKnowledge


def compile_catalogue(argv: list[str]) -> int:
    """`faultbook compile`: 0 written, 1 kb/ has problems, 2 usage."""
    parser = argparse.ArgumentParser(prog="faultbook compile", description="Write the compiled catalogue.")
    parser.add_argument(
        "--kb", type=Path, default=None, help="folder of the knowledge (default: found upwards)"
    )
    parser.add_argument("--target", type=Path, default=Path("build/catalogue"), help="folder to write to")
    parser.add_argument("--keep-going", action="store_true", help="leave unusable entries out, for drafts")
    parser.add_argument("--quiet", action="store_true", help="say nothing when all is well")
    args = parser.parse_args(argv)
    kb = args.kb or find_kb()
    if kb is None or not kb.is_dir():
        print(f"faultbook compile: no knowledge at {kb or 'kb/'}", file=sys.stderr)
        return 2
    try:
        written = write_catalogue(kb, args.target, keep_going=args.keep_going)
    except InvalidKnowledge as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"faultbook compile: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    if args.keep_going:
        left_out = [item.slug for item in load_kb(kb).loaded if item.entry is None]
        if left_out:
            some = ", ".join(left_out[:5]) + (", …" if len(left_out) > 5 else "")
            print(
                f"faultbook: {len(left_out)} unusable entries left out ({some}); see `faultbook check`",
                file=sys.stderr,
            )
    if not args.quiet:
        print("\n".join(str(path) for path in written))
    return 0


def find_kb(start: Path | None = None) -> Path | None:
    """kb/ in this folder or one above."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "kb" / "taxonomy.yaml").is_file():
            return folder / "kb"
        if folder.name == "kb" and (folder / "taxonomy.yaml").is_file():
            return folder
    return None
