"""Several beats, one of which sends each periodic task.

A count in Redis says whether another one sent it. A beat sends a task if nobody else has since its own last look, one
period ago. So one of them goes on sending while the others look on, and the first of these that looks after it ended
takes its place. No clocks are compared.
"""

from __future__ import annotations

from redis.exceptions import RedisError, WatchError

from scheduler import live

#: tasks sent, by name of the periodic task
SENT = live.key("periodic_tasks")


class Turns:
    """One beat's part in sending periodic tasks.

    Redis' errors pass for a turn: the sending that follows meets them, too.
    """

    def __init__(self) -> None:
        self._seen: dict[str, str | None] = {}

    def comes(self, name: str) -> bool:
        """Whether this beat sends the task now."""
        try:
            return self._comes(name)
        except RedisError:
            return True

    def _comes(self, name: str) -> bool:
        with live.client().pipeline() as pipe:
            pipe.watch(SENT)
            sent = pipe.hget(SENT, name)
            if name in self._seen and self._seen[name] != sent:
                self._seen[name] = sent
                return False
            mine = str(int(sent or 0) + 1)
            pipe.multi()
            pipe.hset(SENT, name, mine)
            try:
                pipe.execute()
            except WatchError:
                # Another beat, this very moment. Its content is learned at the next look.
                self._seen[name] = sent
                return False
            self._seen[name] = mine
            return True
