"""Forecasts of the largest second of the next minute: InfAdapter's task.

They are made from the last ten minutes (Section 5). Days 1 to 14 of the published stream are for fitting, days 15 and
16 for the comparison alone. :mod:`.comparison` is the entry point; :mod:`.lstm` trains the paper's network, :mod:`.fit`
the coefficients that :mod:`scheduler.control.learned` starts from.
"""
