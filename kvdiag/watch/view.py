"""The live view of ``kvdiag watch`` in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kvdiag.reports.safe import safe
from kvdiag.watch.live import Happening, Replica, Server
from kvdiag.watch.loop import Tell

_BAR = 20


@contextmanager
def live() -> Iterator[Tell]:
    """A function that redraws the view with what is known now."""
    from rich.live import Live

    with Live(refresh_per_second=4, transient=True) as view:

        def tell(servers: list[Server], _: list[Happening]) -> None:
            view.update(drawn(servers))

        yield tell


def drawn(servers: list[Server]) -> Any:
    """Everything as one renderable; text of the log is shown as it is, never as markup."""
    from rich.console import Group

    return Group(*(part for server in servers for part in _server(server)))


def _server(server: Server) -> Iterator[Any]:
    from rich.table import Table
    from rich.text import Text

    capacity = server.numbers.get("max_total_num_tokens")
    cap = server.numbers.get("max_running_requests")
    head = f"{safe(server.path)}  capacity {_number(capacity)} tokens, {_number(cap)} requests; "
    yield Text(head + f"{server.retractions:,} retractions, {server.seen.lines:,} lines", style="bold")
    table = Table("replica", "usage", "tokens", "running", "queue", "tokens/s", "limit", box=None)
    for rank, replica in sorted(server.replicas.items()):
        table.add_row(*(Text(cell) for cell in _cells(rank, replica)))
    yield table
    for each in server.happenings:
        yield Text(f"{each.time} {each.rank} {safe(each.what)} (line {each.line})", overflow="ellipsis", no_wrap=True)


def _cells(rank: str, replica: Replica) -> list[str]:
    usage = replica.usage
    bar = "" if usage is None else f"{'█' * round(min(usage, 1.0) * _BAR):<{_BAR}} {usage:.2f}"
    numbers = (replica.tokens, replica.running, replica.queued, replica.throughput)
    return [safe(rank) or "-", bar, *(_number(number) for number in numbers), replica.limit]


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"
