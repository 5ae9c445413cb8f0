"""Thin views: parse, call a service, render."""
