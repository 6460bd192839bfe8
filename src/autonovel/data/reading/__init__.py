"""Anyone's images: listed, surveyed, decoded once, and everything unusable accounted for."""
