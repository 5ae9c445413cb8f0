"""The trail of a plan: trigger, demand, the limit that binds, moves and cost.

The cost of moves is in accuracy. Entry point: :func:`.trails.trail`, of a stored plan and the one before. Everything is
read from stored plans, so that a plan is explained by the state that held then, for as long as it is kept
itself. May import the plan's model.
"""
