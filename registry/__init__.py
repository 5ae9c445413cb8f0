"""Applications, variants, members, devices and profiles: models, REST API, inspection of uploads, storage.

Entry points: :mod:`.models` and the REST API below ``/api/v1/``. May import :mod:`workers`, but not :mod:`scheduler`.
"""
