"""The Python interface: one function for each whole job, and the run that it gives."""
