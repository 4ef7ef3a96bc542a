"""Data classes that cost little to define: ``@frozen`` (immutable, hashable) and ``@mutable``, both with slots.

`dataclasses` compiles six methods for each class and imports `inspect`; with more than a hundred classes that was a third of
the time that explaining a small log takes. Here all classes share the same few functions; a class that turns out to be made often
gets a constructor of its own, compiled once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NoReturn, TypeVar, dataclass_transform

_Class = TypeVar("_Class")
_Item = TypeVar("_Item")
_OFTEN = 100
"""So many instances pay for compiling a constructor."""


class _Factory:
    """A default that is made anew for each instance."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def field(*, default_factory: Callable[[], Any]) -> Any:
    """A field whose default is made anew for each instance."""
    return _Factory(default_factory)


class _Plan:
    """The fields of a class: their names in order, their types as written, their defaults, and how often it was made."""

    __slots__ = ("checked", "defaults", "made", "names", "puts", "types")

    def __init__(self, types: dict[str, str], defaults: dict[str, Any], checked: bool) -> None:
        self.names = tuple(types)
        self.types = types
        self.defaults = defaults
        self.checked = checked
        self.made = 0
        self.puts: tuple[Callable[[Any, Any], None], ...] = ()


class _Plans(dict[type, _Plan]):
    """The plan of each data class; a class derived from one shares its plan."""

    def __missing__(self, cls: type) -> _Plan:
        found = next((self[base] for base in cls.__mro__[1:-1] if base in self), None)
        if found is None:
            raise TypeError(f"{cls.__name__} is no data class of kvdiag")
        self[cls] = found
        return found


_plans = _Plans()


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[_Class]) -> type[_Class]:
    """The class as an immutable data class with slots, equal and hashed by its fields."""
    return _defined(cls, _FROZEN)


@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type[_Class]) -> type[_Class]:
    """The class as a data class with slots whose fields may be set; equal by its fields, without a hash."""
    return _defined(cls, _MUTABLE)


def is_data(item: object) -> bool:
    """Whether `item` is an instance of one of these classes."""
    return type(item) in _plans


def names_of(item: object) -> tuple[str, ...]:
    """The names of the fields of an instance, in order."""
    return _plans[type(item)].names


def types_of(cls: type) -> dict[str, str]:
    """The fields of a class in order, each with its type as the source writes it."""
    return dict(_plans[cls].types)


def values_of(item: object) -> dict[str, Any]:
    """The fields of an instance with their values, in order."""
    return {name: getattr(item, name) for name in _plans[type(item)].names}


def plain_of(value: Any) -> Any:
    """The same value with every instance in it as a dict of its fields, through lists, tuples and dicts."""
    if type(value) in _plans:
        return {name: plain_of(each) for name, each in values_of(value).items()}
    if isinstance(value, list | tuple):
        return type(value)(plain_of(each) for each in value)
    if isinstance(value, dict):
        return {key: plain_of(each) for key, each in value.items()}
    return value


def replace(item: _Item, **changes: Any) -> _Item:
    """A copy of an instance in which the fields named have other values. Raises TypeError for a name that is no field."""
    return type(item)(**(values_of(item) | changes))


def _defined(cls: type[_Class], methods: dict[str, Any]) -> type[_Class]:
    """`cls` made again with slots and the shared methods it does not define itself; with a dict where it caches properties."""
    own = dict(cls.__dict__)
    own.pop("__dict__", None)
    own.pop("__weakref__", None)
    types = {name: kind for name, kind in own.get("__annotations__", {}).items() if not kind.startswith("ClassVar")}
    defaults = {name: own.pop(name) for name in types if name in own}
    if not any(isinstance(value, cached_property) for value in own.values()):
        own["__slots__"] = tuple(types)
    meta: Any = type(cls)
    made: type[_Class] = meta(cls.__name__, cls.__bases__, methods | own)
    plan = _plans[made] = _Plan(types, defaults, "__post_init__" in own)
    plan.puts = tuple(made.__dict__[name].__set__ if "__slots__" in own else _putter(name) for name in types)
    return made


def _putter(name: str) -> Callable[[Any, Any], None]:
    return lambda item, value: object.__setattr__(item, name, value)


def _init(self: Any, *args: Any, **kwargs: Any) -> None:
    cls = type(self)
    plan = _plans[cls]
    plan.made += 1
    if plan.made == _OFTEN:
        cls.__init__ = _compiled(plan)
    names = plan.names
    if len(args) > len(names):
        raise TypeError(f"{cls.__name__} takes {len(names)} values, {len(args)} were given")
    given = len(args)
    for put, value in zip(plan.puts, args, strict=False):
        put(self, value)
    for name, put in zip(names[given:], plan.puts[given:], strict=True):
        if name in kwargs:
            put(self, kwargs.pop(name))
        elif name in plan.defaults:
            default = plan.defaults[name]
            put(self, default.make() if type(default) is _Factory else default)
        else:
            raise TypeError(f"{cls.__name__} needs {name}")
    if kwargs:
        raise TypeError(f"{cls.__name__} has no field {next(iter(kwargs))}, or was given it twice")
    if plan.checked:
        self.__post_init__()


def _compiled(plan: _Plan) -> Any:
    """``__init__`` of one class as source would have it: a parameter and an assignment for each field."""
    known: dict[str, Any] = {"_Factory": _Factory}
    parameters, body = [], []
    for index, (name, put) in enumerate(zip(plan.names, plan.puts, strict=True)):
        known[f"_put{index}"] = put
        value = name
        if name in plan.defaults:
            known[f"_default{index}"] = plan.defaults[name]
            if isinstance(plan.defaults[name], _Factory):
                value = f"_default{index}.make() if {name} is _default{index} else {name}"
        parameters.append(f"{name}=_default{index}" if name in plan.defaults else name)
        body.append(f" _put{index}(self, {value})")
    if plan.checked:
        body.append(" self.__post_init__()")
    exec(f"def __init__(self, {', '.join(parameters)}):\n" + "\n".join(body), known)
    return known["__init__"]


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in _plans[type(self)].names])


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in _plans[type(self)].names)
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: object) -> Any:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _refuse(self: Any, name: str, *_: Any) -> NoReturn:
    raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")


def _setstate(self: Any, state: tuple[Any, ...]) -> None:
    for put, value in zip(_plans[type(self)].puts, state, strict=True):
        put(self, value)


_MUTABLE: dict[str, Any] = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": None,
    "__getstate__": _values,
    "__setstate__": _setstate,
}
_FROZEN: dict[str, Any] = _MUTABLE | {"__hash__": _hash, "__setattr__": _refuse, "__delattr__": _refuse}
