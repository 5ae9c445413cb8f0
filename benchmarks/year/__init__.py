"""A year in an hour: an appliance whose clock moves a day every few seconds.

It is a whole appliance under light load. The wall clock is libfaketime's, in every process of the appliance, Redis
included; the monotonic clock is left alone. After a quarter of the days the clock goes back by three hours; after half
of them the appliance boots in 1970, after three quarters in 2040, and each time the clock is corrected while it runs.
Every seventh day a model is uploaded, a key is made, and those of the week before are deleted. Each day the newest plan
must be at every member, a new key accepted and a deleted one refused within 5 s, regular plans must go on, and each
member's certificate must be valid by the control plane's clock; none may be refused, and no query may fail, except
while the appliance itself is stopped. Memory of each process, database, Redis, store and logs are sampled each day and
must not grow from the first sixth of the days on.
"""

from .story import main

__all__ = ["main"]
