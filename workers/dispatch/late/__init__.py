"""Late binding: queries wait in the core until a device is nearly free.

They wait on a schedule of batches, each of which is dispatched when its device is nearly free.

The entry point is :class:`.binding.LateBinding`. Pure: imports the interface, the serving options, the latency
correction, the feedback and the timers of ``workers/dispatch``, and nothing else of Nereus.
"""
