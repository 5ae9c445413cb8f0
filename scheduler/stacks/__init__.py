"""Published systems, a folder a paper, any of which can be deleted.

Its executing half in ``workers/dispatch/published/papers`` goes with it. A folder's ``PAPER`` (:class:`.paper.Paper`)
has its strategies, and the stacks that only simulations run; the rest of Nereus sees what :mod:`.registry` finds. What
several papers share is here: :mod:`.dedicated` (a device has one variant), :mod:`.placed_once` (static placements).
Pure. May import ``scheduler.allocation``, ``scheduler.progress`` and ``workers.dispatch``; a paper imports no other.
"""
