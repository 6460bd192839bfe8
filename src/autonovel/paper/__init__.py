"""The paper's tables and figures as data, and the same ones made anew."""
