"""Programs for developers, which no box has."""
