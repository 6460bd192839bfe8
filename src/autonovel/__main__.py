"""``python -m autonovel`` is the command ``autonovel``."""

from autonovel.cli import main

raise SystemExit(main())
