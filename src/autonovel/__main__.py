"""``python -m autonovel`` is the command ``autonovel``."""

from autonovel.cli.main import main

raise SystemExit(main())
