"""The data classes behave as those of the standard library, however often one is made."""

from __future__ import annotations

import pickle
from functools import cached_property

import pytest

from kvdiag.frozen import field, frozen, mutable, names_of, plain_of, replace, types_of


@frozen
class Point:
    x: int
    y: int = 2
    tags: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is negative")


@frozen
class Line:
    begin: Point
    end: Point

    @cached_property
    def width(self) -> int:
        return self.end.x - self.begin.x


@mutable
class Count:
    name: str
    seen: dict[str, int] = field(default_factory=dict)


@pytest.mark.parametrize("made_before", [0, 300], ids=["first", "often"])
def test_fields_are_taken_by_place_and_name_with_their_defaults(made_before: int) -> None:
    for _ in range(made_before):
        Point(1)
    point = Point(1, tags=("a",))
    assert (point.x, point.y, point.tags, point.notes) == (1, 2, ("a",), [])
    assert Point(1).notes is not Point(1).notes
    for wrong in ({}, {"x": 1, "z": 2}):
        with pytest.raises(TypeError):
            Point(**wrong)
    with pytest.raises(TypeError):
        Point(1, 2, (), [], 5)
    with pytest.raises(TypeError):
        Point(1, x=2)
    with pytest.raises(ValueError, match="negative"):
        Point(-1)


def test_a_frozen_instance_cannot_be_changed_and_a_mutable_one_can() -> None:
    point = Point(1)
    with pytest.raises(AttributeError, match=r"Point\.x"):
        point.x = 3  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del point.x
    count = Count("a")
    count.name = "b"
    assert count == Count("b")
    with pytest.raises(TypeError, match="unhashable"):
        hash(count)
    with pytest.raises(AttributeError):
        count.other = 1  # type: ignore[attr-defined]


def test_equality_and_hash_go_by_the_fields_and_the_class() -> None:
    assert Line(Point(1), Point(4)) == Line(Point(1), Point(4))
    assert Line(Point(1), Point(4)) != (Point(1), Point(4))
    assert len({(1, Point(1).x), (1, 1)}) == 1
    assert repr(Count("a")) == "Count(name='a', seen={})"


def test_cached_properties_pickles_copies_and_plain_forms() -> None:
    line = Line(Point(1), Point(4, notes=["n"]))
    assert line.width == line.width == 3
    assert pickle.loads(pickle.dumps(line)) == line
    assert replace(line, end=Point(9)).width == 8
    assert plain_of({"l": [line]})["l"][0]["end"] == {"x": 4, "y": 2, "tags": (), "notes": ["n"]}
    assert names_of(line) == ("begin", "end")
    assert types_of(Line) == {"begin": "Point", "end": "Point"}
    with pytest.raises(TypeError):
        replace(line, middle=1)
