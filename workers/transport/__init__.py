"""Connections between boxes: mutual TLS between members, by listed keys.

The members' cores, fronts and executors connect.

Entry points: :class:`~.identity.MemberIdentity` (a member's key, certificate and TLS contexts), and
:mod:`~.authority`, by which the control plane issues certificates. Imports `workers.net`, `workers.protocol`,
`workers.certificates`, `workers.disk` and `workers.log`, and nothing else of Nereus. ``docs/security.md`` says what is
promised.
"""
