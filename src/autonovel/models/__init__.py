"""Networks: a backbone of named blocks, and the heads on top of it."""

from autonovel.models.net import Net, build

__all__ = ["Net", "build"]
