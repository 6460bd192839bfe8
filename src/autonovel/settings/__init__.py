"""Every setting, the named recipes, and how what is left open is resolved. Imports no torch."""
