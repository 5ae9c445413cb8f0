"""Profile jobs: ordered from nodes (:mod:`.dispatch`), and their results stored (:mod:`.results`)."""
