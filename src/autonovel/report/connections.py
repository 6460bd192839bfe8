"""Connections to the page's server: one that says nothing, or no more, is closed."""

from __future__ import annotations

import asyncio
from typing import Any

PATIENCE = 20.0
"""Seconds in which a request must be complete."""

AT_ONCE = 200
"""Connections at most; a browser opens six."""


def impatient_protocol(patience: float = PATIENCE, at_once: int = AT_ONCE) -> type[Any]:
    """uvicorn's protocol, but for its patience: by itself it would wait for ever for the rest of a request."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Impatient(H11Protocol):
        """Closes the connection when a request is not complete in time."""

        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > at_once:
                transport.close()
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._stop()

        def _watch(self) -> None:
            """The time runs from the first byte of a request to its last, however many come in between."""
            if not self._lacks_something():
                self._stop()
            elif self._timer is None:
                self._timer = self.loop.call_later(patience, self._give_up)

        def _lacks_something(self) -> bool:
            return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _give_up(self) -> None:
            self._timer = None
            if self._lacks_something():
                self.transport.close()

    return Impatient
