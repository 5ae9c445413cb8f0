"""The batch policies of simulations, by name.

They are those that serve live, and one to compare with.
"""

from __future__ import annotations

from workers.dispatch.published import batching

from .nereus_policy import NereusPolicy

#: the default first
POLICIES = {"nereus": NereusPolicy, **batching.POLICIES}
