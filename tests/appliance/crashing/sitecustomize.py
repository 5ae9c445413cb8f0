"""Makes executors crash on an input. Python's start finds this module where PYTHONPATH names its folder."""

import os
import signal
import sys

if "workers.executor" in sys.orig_argv:
    import numpy as np

    from workers.executor import answers

    _of_batch = answers.of_batch

    def _crash(model, batch):
        if batch.body is not None and np.float32(666.0) in np.frombuffer(batch.body, "<f4"):
            os.kill(os.getpid(), signal.SIGSEGV)
        return _of_batch(model, batch)

    answers.of_batch = _crash
