"""Registry rows as JSON, and accepted input, by subject.

Unknown fields are rejected as misspelt.
"""
