"""Django's configuration of the console."""

import gc

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "console"

    def ready(self) -> None:
        # The last application. The settings turned garbage collection off; what is loaded stays out of it.
        gc.freeze()
        gc.enable()
