"""The Celery application; tasks live in ``scheduler.tasks``."""

import os
import time

from celery import Celery
from celery.beat import EmbeddedService, Scheduler, error
from celery.signals import worker_ready

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
app = Celery("nereus")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["scheduler"])

import appliance.heartbeats  # noqa: E402, F401


class SteadyScheduler(Scheduler):
    """The schedule of periodic tasks, on the monotonic clock.

    A wall clock that is set never delays a periodic task. Celery's own waits out a step back, and keeps the times of
    last runs in a file that outlives a restart.

    Of several beats of one cluster one sends each task: it goes on while the count of sent ones in Redis is as it left
    it, and the first of the others that finds it unchanged a period later takes its place.
    """

    def setup_schedule(self) -> None:
        self.merge_inplace(self.app.conf.beat_schedule)
        self._due = dict.fromkeys(self.schedule, time.monotonic())
        self._sent: dict[str, str | None] = {}

    def tick(self, *_) -> float:
        """Send what is due; returns the seconds until the next task is."""
        for name, entry in self.schedule.items():
            now = time.monotonic()
            if now < self._due[name]:
                continue
            # Not from when it was due: what was missed while the box slept is not made up for.
            self._due[name] = now + entry.schedule.run_every.total_seconds()
            try:
                if entry.options.get("queue") or self.sends(name):
                    self.apply_entry(entry, producer=self.producer)
            except Exception as reason:
                # It would end the thread, and with it all heartbeats, while the worker goes on.
                error("%s was not sent: %s", name, reason, exc_info=True)
        return max(0.0, min(self._due.values()) - time.monotonic())

    def sends(self, name: str) -> bool:
        """Whether this beat sends a task that is due.

        Redis' errors pass for it: the sending that follows meets them, too.
        """
        from redis.exceptions import RedisError

        from scheduler import live

        try:
            redis, key = live.client(), live.key("periodic_tasks")
            sent = redis.hget(key, name)
            if name in self._sent and self._sent[name] != sent:
                self._sent[name] = sent
                return False
            self._sent[name] = str(redis.hincrby(key, name, 1))
        except RedisError:
            pass
        return True


@worker_ready.connect
def _send_periodic_tasks(sender, **_) -> None:
    """In the worker of the queue that is never busy for long."""
    if app.conf.task_default_queue in sender.app.amqp.queues.consume_from:
        EmbeddedService(app, thread=True, scheduler_cls=SteadyScheduler).start()
