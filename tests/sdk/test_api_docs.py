"""What `faultbook.__all__` promises is documented: classes, methods, functions, and fields whose name does not say it all."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import faultbook
from faultbook import catalog, model

CLASSES = [faultbook.Catalog, faultbook.Diagnosis, model.Finding, model.Evidence, model.Initiating, catalog.CatalogError]
PLAIN = {"title", "first_abnormal"}


@pytest.mark.parametrize("name", [n for n in faultbook.__all__ if n != "__version__"])
def test_each_public_name_is_documented(name: str) -> None:
    assert (inspect.getdoc(getattr(faultbook, name)) or "").strip()


def test_the_functions_say_what_they_raise() -> None:
    assert "Raises" in (faultbook.diagnose.__doc__ or "") and "Raises" in (faultbook.load_catalog.__doc__ or "")


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_each_public_method_and_field_is_documented(cls: type) -> None:
    source = Path(inspect.getsourcefile(cls) or "").read_text("utf-8")
    (node,) = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ClassDef) and n.name == cls.__name__)
    for here, following in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
        if isinstance(here, ast.FunctionDef) and not here.name.startswith("_"):
            assert ast.get_docstring(here), f"{cls.__name__}.{here.name}"
        if isinstance(here, ast.AnnAssign) and isinstance(here.target, ast.Name) and here.target.id not in PLAIN:
            documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            assert documented, f"{cls.__name__}.{here.target.id}"
