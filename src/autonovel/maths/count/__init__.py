"""How many new classes there are."""
