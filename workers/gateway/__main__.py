"""``python -m workers.gateway [--number N]``: one process of a gateway.

It is the first or the Nth of ``NEREUS_GATEWAYS``. Exit status 2: settings or number are wrong; 1: it cannot listen.
"""

from __future__ import annotations

import argparse
import sys


def main() -> int:
    # Here, since the parser process imports this module, too.
    import uvloop

    from workers import descriptors, heap, log, oom
    from workers.settings import Settings, SettingsError

    from .serving import serve

    parser = argparse.ArgumentParser(prog="python -m workers.gateway", description="One gateway process.")
    parser.add_argument("--number", type=int, default=1, help="which of NEREUS_GATEWAYS it is, from 1 (default: 1)")
    number = parser.parse_args().number
    try:
        settings = Settings.from_environ()
        if not 1 <= number <= settings.gateways:
            raise SettingsError([f"--number={number}: must be from 1 to {settings.gateways}, which is NEREUS_GATEWAYS"])
        settings.make_folders()
    except SettingsError as error:
        print("\n".join(error.problems), file=sys.stderr)
        return 2
    except OSError as error:
        print(f"NEREUS_HOME: {error}", file=sys.stderr)
        return 2
    log.configure("gateway" if number == 1 else f"gateway-{number}", settings.log_level)
    descriptors.raise_limit()
    heap.keep_freed()
    oom.set_score(oom.GATEWAY)
    return uvloop.run(serve(settings, number))


if __name__ == "__main__":
    sys.exit(main())
