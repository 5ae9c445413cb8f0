"""The control loop: demand, allocations, plans for members, profile jobs.

It measures demand, solves allocations, sends plans to members and orders profiles. Entry points: the Celery tasks in
:mod:`.tasks` and the members' websockets in :mod:`.members`. May import :mod:`registry` and :mod:`workers`.
"""
