"""The mathematics: pure functions on tensors and arrays. Knows nothing of files, networks or training loops."""
