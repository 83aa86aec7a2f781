"""`dataclass` as in the standard library, for a process that lives a tenth of a second.

The engine's values are fifty small dataclasses. Making them with `dataclasses` was half of a cold start: that
module imports `inspect`, and writes and compiles six methods for each class before anybody makes an instance. The
decorator here has the same meaning for what the engine uses (frozen, slots, kw_only, defaults and factories, equality,
hash, `__post_init__`, `replace`), shares all methods but `__init__`, and compiles that at the first instance. To
`dataclasses.fields`, `is_dataclass`, `replace` and to pydantic such a class is a dataclass: what they look for is
made when they look. Type checkers see the standard one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass", "defaults", "field", "names", "replace"]


def names(value: Any) -> tuple[str, ...]:
    """The fields of a value, in order; empty for anything that is no instance of a dataclass."""
    found: tuple[str, ...] = getattr(type(value), "__match_args__", ()) if hasattr(type(value), "__value__") else ()
    return found


def defaults(value: Any) -> Mapping[str, Any]:
    """The plain defaults of a value's fields (those with a factory have none)."""
    found: Mapping[str, Any] = type(value).__value__.plain
    return found


if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
else:
    from operator import attrgetter

    _NOTHING = object()

    class _Factory:
        __slots__ = ("make",)

        def __init__(self, make):
            self.make = make

    def field(*, default_factory):
        """A default made anew for each instance."""
        return _Factory(default_factory)

    def replace(value, /, **changes):
        """A copy with other values of some fields."""
        cls = value.__class__
        for name in cls.__value__.fields:
            if name not in changes:
                changes[name] = getattr(value, name)
        return cls(**changes)

    def dataclass(*, frozen=False, slots=False, kw_only=False):
        """See the module; only with arguments, as all uses here have them."""

        def decorate(cls):
            own = cls.__dict__
            fields = tuple(own.get("__annotations__", ()))
            made = _Value(fields, {n: own[n] for n in fields if n in own}, frozen, slots, kw_only)
            content = {n: v for n, v in own.items() if n not in ("__dict__", "__weakref__") and n not in made.defaults}
            if slots:
                content["__slots__"] = fields
            else:
                content |= made.plain
            content |= _SHARED
            content |= {"__value__": made, "__match_args__": fields}
            if frozen:
                content |= _FROZEN
            again = type(cls)(cls.__name__, cls.__bases__, content)
            again.__qualname__ = cls.__qualname__
            made.cls = again
            made.key = attrgetter(*fields) if len(fields) > 1 else lambda value: tuple(getattr(value, n) for n in fields)
            again.__init__ = made.first_init()
            return again

        return decorate

    class _Value:
        """What the shared methods need to know of a class."""

        __slots__ = ("cls", "defaults", "fields", "frozen", "key", "kw_only", "plain", "slots", "standard")

        def __init__(self, fields, defaults, frozen, slots, kw_only):
            self.fields, self.defaults = fields, defaults
            self.frozen, self.slots, self.kw_only = frozen, slots, kw_only
            self.plain = {n: v for n, v in defaults.items() if not isinstance(v, _Factory)}
            self.standard = None

        def first_init(self):
            def __init__(self_, /, *args, **kwargs):
                self.cls.__init__ = init = self.write_init()
                init(self_, *args, **kwargs)

            return __init__

        def write_init(self):
            """`__init__` as a person would write it; a frozen one stores through the slots, past `__setattr__`."""
            scope = {"nothing": _NOTHING, "set_": object.__setattr__}
            head, body = ["self", "*"] if self.kw_only else ["self"], []
            for n in self.fields:
                value = n
                if n in self.defaults:
                    default = self.defaults[n]
                    if isinstance(default, _Factory):
                        scope[f"make_{n}"] = default.make
                        head.append(f"{n}=nothing")
                        value = f"make_{n}() if {n} is nothing else {n}"
                    else:
                        scope[f"default_{n}"] = default
                        head.append(f"{n}=default_{n}")
                else:
                    head.append(n)
                if not self.frozen:
                    body.append(f" self.{n} = {value}")
                elif self.slots:
                    scope[f"set_{n}"] = self.cls.__dict__[n].__set__
                    body.append(f" set_{n}(self, {value})")
                else:
                    body.append(f" set_(self, {n!r}, {value})")
            if "__post_init__" in self.cls.__dict__:
                body.append(" self.__post_init__()")
            exec(f"def __init__({', '.join(head)}):\n" + ("\n".join(body) or " pass"), scope)
            init = scope["__init__"]
            init.__qualname__ = f"{self.cls.__qualname__}.__init__"
            init.__module__ = self.cls.__module__
            return init

        def as_standard(self):
            """The `dataclasses.Field`s of a twin that the standard library made."""
            if self.standard is None:
                import dataclasses

                content = {"__annotations__": dict(self.cls.__annotations__), "__module__": self.cls.__module__}
                for n, default in self.defaults.items():
                    is_factory = isinstance(default, _Factory)
                    content[n] = dataclasses.field(default_factory=default.make) if is_factory else default
                twin = dataclasses.dataclass(frozen=self.frozen, kw_only=self.kw_only)(type(self.cls.__name__, (), content))
                self.standard = twin
            return self.standard

    class _Standard:
        """An attribute of `dataclasses`, made when it is first asked for."""

        def __init__(self, name):
            self.name = name

        def __get__(self, instance, cls):
            return getattr(cls.__value__.as_standard(), self.name)

    def _repr(self):
        inner = ", ".join(f"{n}={getattr(self, n)!r}" for n in self.__value__.fields)
        return f"{self.__class__.__qualname__}({inner})"

    def _eq(self, other):
        if other.__class__ is not self.__class__:
            return NotImplemented
        key = self.__value__.key
        return key(self) == key(other)

    def _hash(self):
        return hash(self.__value__.key(self))

    def _frozen(self, *_):
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"{self.__class__.__qualname__} is frozen")

    def _get_state(self):
        return [getattr(self, n) for n in self.__value__.fields]

    def _set_state(self, state):
        for n, value in zip(self.__value__.fields, state, strict=True):
            object.__setattr__(self, n, value)

    _SHARED = {
        "__repr__": _repr, "__eq__": _eq, "__hash__": None, "__getstate__": _get_state, "__setstate__": _set_state,
        "__dataclass_fields__": _Standard("__dataclass_fields__"),
        "__dataclass_params__": _Standard("__dataclass_params__"),
    }  # fmt: skip
    _FROZEN = {"__hash__": _hash, "__setattr__": _frozen, "__delattr__": _frozen}
