"""MCP servers of the lab: each is a process of its own, with its own log credential and without the model's key."""
