"""How members on several boxes reach each other: TLS between cores, fronts and executors, mutual and by listed key.

Entry points: :class:`~.identity.MemberIdentity` (a member's key, certificate and TLS contexts), and
:mod:`~.authority`, by which the control plane issues certificates. Imports `workers.protocol`, `workers.certificates`,
`workers.disk` and `workers.log`, and nothing else of ours. ``docs/security.md`` says what is promised.
"""
