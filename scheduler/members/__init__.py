"""The control plane's end of members' links: admission, configurations, statistics, devices.

Entry point: the consumers, which parse, call and answer; each other module does one of the things that they call.
"""
