"""The one training loop, one training step, and the rules that move weights."""
