"""Keys, certificates and TLS: of this box's servers, of the control plane, and between members.

:mod:`.authority` issues and checks certificates. With it :mod:`.server` identifies this box to clients,
:mod:`.control_plane` finds out whom to send a token, and :mod:`.member` connects the boxes of a cluster by mutual TLS,
over the connections of :mod:`.endpoints`. ``docs/security.md`` says what is promised.
"""
