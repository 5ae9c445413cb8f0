"""Promises: the accuracy and violations to be expected.

They also say what these would be if demand, devices or choices changed. Pure: ``changes`` edits a problem, ``recorded``
makes arrivals like those that came, ``windows`` simulates them, and ``intervals`` says how far to trust the result.
``present`` reads the cluster as it is; ``keeping`` stores promises and compares them with what came; ``what_if``
answers operators. May import ``scheduler`` and ``registry``. Only :mod:`scheduler.tasks`, the API and the console
import it.
"""
