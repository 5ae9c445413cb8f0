"""Repairs, which need a person: since when, the effect in numbers, and one action.

Entry point: :mod:`.listing`. :mod:`.facts` reads everything once; each of :data:`.checks.CHECKS` is a pure function
from facts to repairs; :mod:`.known` remembers since when they have been seen and which ones operators ignore. May
import registry, workers and the rest of the scheduler; console, REST and metrics ask it.
"""
