"""``python -m appliance``: the command ``nereus``."""

from appliance.command import main

if __name__ == "__main__":
    main()
