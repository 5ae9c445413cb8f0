"""One plan: from measured demand to a problem, an allocation, and what is sent.

Entry point: :mod:`.planner`. :mod:`.assemble` reads the problem from the database, :mod:`.wire` writes the plan as
members get it, :mod:`.requests` asks for a plan from anywhere.
"""
