"""Playbooks against hosts: this machine, and Debian boxes under systemd-nspawn."""
