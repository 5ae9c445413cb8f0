"""The Django project and the one-command local appliance."""
