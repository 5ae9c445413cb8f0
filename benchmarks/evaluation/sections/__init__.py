"""The sections of the page, in its order.

Each is a module with

``NAME`` (for ``--only``) and ``TITLE``;
``cases(context)``: the runs that it needs; where there are none, ``SOURCE`` is the module whose imports its figures
depend on (None: all of the source);
``body(context)``: its Markdown, from the results that there are; it writes its images on the way.
"""

from __future__ import annotations

from types import ModuleType

from . import ablations, applications, batching, bursty, end_to_end, fidelity

from . import heterogeneous, infaas, infadapter, period, ramsis, realistic, references, scaling, slo, worlds  # isort: skip

_ORDER = (
    realistic, end_to_end, references, period, infaas, bursty, batching, ablations, slo, applications, scaling,
    heterogeneous, ramsis, infadapter, worlds, fidelity,
)  # fmt: skip
ALL: dict[str, ModuleType] = {module.NAME: module for module in _ORDER}
