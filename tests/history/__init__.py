"""The history: folding, recording, reading, REST."""
