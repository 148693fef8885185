"""The hypervisor as a witness: what it saw of its guests' packets, sent to the log under a token and key of its own.

Standard library, python3-cryptography, and the glasslab package's frames with their vocabulary, which lie beside it.
"""
