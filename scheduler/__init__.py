"""The control loop: measures demand, solves allocations, sends plans to members, orders profiles.

Entry points: the Celery tasks in :mod:`.tasks` and the members' websockets in :mod:`.members`. May import
:mod:`registry` and :mod:`workers`.
"""
