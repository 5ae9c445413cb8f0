"""The fault matrix: ``python -m benchmarks faults``.

Each row (:mod:`.rows`) breaks one part of a whole appliance under load. Clients record every query like a Jepsen
history (:mod:`.history`), an observer adds plans, members' versions and counters, and a pure checker (:mod:`.checker`)
reads all of it afterwards. A site (:mod:`.site`) is what a row runs on, a fault (:mod:`.breaking`, :mod:`.disks`) a
context manager on it. Imports the outer parts of the product only.
"""
