"""The lab's walls on a hypervisor: asserted, checked, healed, removed.

Only the standard library, Python 3.11 or newer: it runs while the network is down. Modules import downwards:
__main__ > watch > walls > drift > routes, tables, ports, settings > state > netlink, kernel.
"""
