"""`python -m neve.cli`: the command `neve` when it is not on the PATH."""

from neve.cli import main

raise SystemExit(main())
