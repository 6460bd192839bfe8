"""One discovery: planned, prepared, run stage by stage, finished and scored."""
