"""The executor: one process per device that loads variants, queues, batches, runs and answers."""
