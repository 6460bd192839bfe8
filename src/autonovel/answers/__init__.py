"""From features to answers: a class, a probability, and whether an image is unlike anything seen."""
