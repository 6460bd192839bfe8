"""The command line: main finds the command, flags reads what was typed, and each command has a file of its own."""
