"""Policies of RAMSIS: solver, expectation, tables, binding."""
