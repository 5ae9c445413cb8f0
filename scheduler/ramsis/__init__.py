"""RAMSIS' policies: the variant to run by queue length and slack time. Pure.

The length is that of a worker's queue, and the slack time that of its head. Source: Mendoza et al., "Model Selection
for Latency-Critical Inference Serving" (EuroSys '24). ``worker`` describes a worker, ``arrivals`` what reaches it,
``transitions`` its Markov decision process, :func:`.solve.solve` the optimal policy, :func:`.expectation.expected` what
it promises, :func:`.load_policies.policies` those for a range of loads. May import NumPy, :mod:`scheduler.progress` and
``workers.dispatch``.
"""
