"""Policies of RAMSIS: which variant a worker runs by the length of its queue and the slack of its head. Pure.

Source: Mendoza et al., "Model Selection for Latency-Critical Inference Serving" (EuroSys '24). ``worker`` describes a
worker, ``arrivals`` what reaches it, ``transitions`` its Markov decision process, :func:`.solve.solve` the optimal
policy, :func:`.expectation.expected` what it promises, :func:`.ladder.policies` those for a range of loads. May import
NumPy and ``workers.dispatch``.
"""
