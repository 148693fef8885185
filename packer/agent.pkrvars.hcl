# The agent's machine, in the published sizes.
template = "agent"
cores    = 2
memory   = 4096
