"""Names of applications, variants, members, keys and tokens."""

from django.core.validators import RegexValidator

name_validator = RegexValidator(
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z",
    "must be 1 to 63 letters, digits, '.', '_' or '-', beginning with a letter or digit",
)
