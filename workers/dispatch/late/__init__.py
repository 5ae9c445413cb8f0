"""Late binding: queries wait in the core on a schedule of batches, dispatched when their device is nearly free.

The entry point is :class:`.binding.LateBinding`. Pure: imports the interface, the serving options, the latency
correction, the stragglers and the timers of ``workers/dispatch``, and nothing else of ours.
"""
