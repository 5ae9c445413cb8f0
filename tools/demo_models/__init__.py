"""The demo's models, made from data."""
