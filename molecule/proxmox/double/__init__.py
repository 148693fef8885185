"""A test double of the Proxmox VE API: fakepve, and what the lab needs that fakepve lacks.

Started as `python -m double --help` with `molecule/proxmox` on PYTHONPATH. What it does not do is told in
docs/test-double.md.
"""
