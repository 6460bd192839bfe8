"""The published data sets and the paper's splits of them."""
