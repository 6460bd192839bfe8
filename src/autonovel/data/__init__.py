"""Images: where they come from, how they are held, how they are varied. Knows nothing of losses."""
