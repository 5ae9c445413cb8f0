"""Registry rows as JSON, and accepted input, by subject."""
