"""``@frozen``: immutable data classes that cost a tenth of ``dataclass(frozen=True, slots=True)`` to define.

`dataclass` compiles six methods for each class; with some eighty classes that was a third of the time that explaining a
small log takes. Here all classes share the same six functions. Making an instance is slower by a microsecond or two, so
classes of which a log gives thousands (lines, records, intervals) stay with `dataclass`.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, NoReturn, TypeVar, dataclass_transform

_Class = TypeVar("_Class")
_Plan = tuple[tuple[str, ...], dict[str, Any], dict[str, Any]]
_plans: dict[type, _Plan] = {}


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[_Class]) -> type[_Class]:
    """The class as an immutable data class with slots, equality and hash by its fields, usable with ``dataclasses``."""
    made = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    for name, method in _METHODS.items():
        setattr(made, name, method)
    return made


def names_of(item: object) -> tuple[str, ...]:
    """The names of the fields of a frozen instance, in order."""
    return _plan(type(item))[0]


def _plan(cls: type) -> _Plan:
    """Names of the fields, their defaults and default factories."""
    plan = _plans.get(cls)
    if plan is None:
        known = fields(cls)
        plan = _plans[cls] = (
            tuple(each.name for each in known),
            {each.name: each.default for each in known if each.default is not MISSING},
            {each.name: each.default_factory for each in known if each.default_factory is not MISSING},
        )
    return plan


def _init(self: Any, *args: Any, **kwargs: Any) -> None:
    names, defaults, factories = _plan(type(self))
    put = object.__setattr__
    if len(args) > len(names):
        raise TypeError(f"{type(self).__name__} takes {len(names)} values, {len(args)} were given")
    for name, value in zip(names, args, strict=False):
        put(self, name, value)
    for name in names[len(args) :]:
        if name in kwargs:
            put(self, name, kwargs.pop(name))
        elif name in defaults:
            put(self, name, defaults[name])
        elif name in factories:
            put(self, name, factories[name]())
        else:
            raise TypeError(f"{type(self).__name__} needs {name}")
    if kwargs:
        raise TypeError(f"{type(self).__name__} has no field {next(iter(kwargs))}, or was given it twice")


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in _plan(type(self))[0]])


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in _plan(type(self))[0])
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: object) -> Any:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _refuse(self: Any, name: str, *_: Any) -> NoReturn:
    raise FrozenInstanceError(f"{type(self).__name__}.{name} cannot be changed")


def _setstate(self: Any, state: tuple[Any, ...]) -> None:
    for name, value in zip(_plan(type(self))[0], state, strict=True):
        object.__setattr__(self, name, value)


_METHODS: dict[str, Any] = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__getstate__": _values,
    "__setstate__": _setstate,
}
