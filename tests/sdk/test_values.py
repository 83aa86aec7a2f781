"""`values.dataclass` means what `dataclasses.dataclass` means, for all that the engine uses of it."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pickle
import pkgutil
import subprocess
import sys

import pytest

import faultbook
from faultbook import values
from faultbook.model import Series, Source
from faultbook.signatures import LogSignature, Pattern, signature_from_dict, to_dict


def _all_values() -> list[type]:
    found = []
    for module in pkgutil.iter_modules(faultbook.__path__):
        if not module.name.startswith("_"):
            loaded = importlib.import_module(f"faultbook.{module.name}")
            found += [v for v in vars(loaded).values() if isinstance(v, type) and hasattr(v, "__value__")]
    return sorted(set(found), key=lambda c: (c.__module__, c.__name__))


@pytest.mark.parametrize("cls", _all_values(), ids=lambda c: c.__name__)
def test_every_value_has_the_signature_and_the_traits_that_the_standard_library_would_give_it(cls: type) -> None:
    import inspect

    twin = cls.__value__.as_standard()  # type: ignore[attr-defined]
    wanted = inspect.signature(twin.__init__)
    ours = inspect.signature(cls.__value__.write_init())  # type: ignore[attr-defined]
    assert [(p.name, p.kind) for p in ours.parameters.values()] == [(p.name, p.kind) for p in wanted.parameters.values()]
    for a, b in zip(ours.parameters.values(), wanted.parameters.values(), strict=True):
        assert (a.default is inspect.Parameter.empty) == (b.default is inspect.Parameter.empty)
    assert dataclasses.is_dataclass(cls)
    assert [f.name for f in dataclasses.fields(cls)] == [f.name for f in dataclasses.fields(twin)]
    assert (cls.__hash__ is None) == (twin.__hash__ is None)


def test_a_frozen_value_is_frozen_equal_hashable_and_travels() -> None:
    pattern = Pattern(pattern="a", anchors=("abcd",))
    assert pattern == Pattern(pattern="a", anchors=("abcd",)) != Pattern(pattern="b", anchors=("abcd",))
    assert pattern != "a"
    assert hash(pattern) == hash(Pattern(pattern="a", anchors=("abcd",)))
    assert pickle.loads(pickle.dumps(pattern)) == copy.deepcopy(pattern) == pattern
    assert values.replace(pattern, pattern="b") == dataclasses.replace(pattern, pattern="b") == Pattern(
        pattern="b", anchors=("abcd",)
    )
    assert repr(pattern).startswith("Pattern(pattern='a', ignore_case=False")
    with pytest.raises(dataclasses.FrozenInstanceError):
        pattern.pattern = "b"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del pattern.pattern
    with pytest.raises(TypeError):
        Pattern("a")  # type: ignore[misc]  # keywords only
    with pytest.raises(TypeError):
        Source()  # type: ignore[call-arg]


def test_factories_make_a_value_for_each_instance() -> None:
    @values.dataclass(slots=True)
    class Bag:
        items: list[int] = values.field(default_factory=list)
        size: int = 0

        def __post_init__(self) -> None:
            self.size = len(self.items)

    first, second = Bag(), Bag([1, 2])
    first.items.append(3)
    assert (Bag().items, second.size) == ([], 2)
    second.size = 5
    assert second.size == 5
    with pytest.raises(TypeError):
        hash(first)
    with pytest.raises(AttributeError):
        first.other = 1  # type: ignore[attr-defined]


def test_fields_of_anything_else_are_none() -> None:
    assert values.names(Series("a", None, 0, None, 0, (), (), ()))[:2] == ("name", "role")
    assert values.names("text") == values.names(Series) == ()


def test_signatures_survive_json() -> None:
    log = {
        "kind": "log", "id": "x", "role": "root", "all": [{"pattern": "abcd", "literals": ["abcd"]}],
        "within": {"lines": 3}, "ranks": {"quantifier": "at_least", "count": 2},
        "where": [{"left": "a", "op": "<", "right": 2.0}], "not_evidence_of": ["y"],
    }  # fmt: skip
    made = signature_from_dict(log)
    assert isinstance(made, LogSignature) and isinstance(made.all[0], Pattern)
    assert to_dict(made) == log
    metric = {"kind": "metric", "id": "m", "role": "root", "observed_in": "stock_log",
              "all": [{"series": ["loss"], "test": "nonfinite"}]}  # fmt: skip
    assert to_dict(signature_from_dict(metric)) == metric
    with pytest.raises((KeyError, TypeError)):
        signature_from_dict({**metric, "foreign": 1})
    with pytest.raises((KeyError, TypeError)):
        signature_from_dict({"kind": "log", "role": "root"})


def test_a_diagnosis_never_imports_the_slow_modules() -> None:
    code = (
        "import sys\nimport faultbook\nfaultbook.diagnose(text='step=1 loss=2\\nRuntimeError: boom\\n')\n"
        "slow = {'dataclasses', 'inspect', 'statistics', 'datetime', 'csv', 'tempfile', 'rich', 'hyperscan'}\n"
        "print(*sorted(slow & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
