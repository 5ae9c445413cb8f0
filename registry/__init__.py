"""The registry: applications, variants, members, devices and profiles.

It has their models and REST API, the inspection of uploads and the storage. Entry points: :mod:`.models` and the REST
API below ``/api/v1/``. May import :mod:`workers`, but not :mod:`scheduler`.
"""
