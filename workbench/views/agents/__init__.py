"""The face of the workbench for agents: typed tools that an MCP server offers.

Agents read what people see. They may propose, control and run code only as far as a person allowed
when the server was started. What they do is an event with their name.
"""
