"""Settings compared on known classes whose labels are taken away; labels of new classes choose nothing."""
