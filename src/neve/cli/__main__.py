"""`python -m neve.cli`: the command `neve` where it is not on the PATH."""

from neve.cli import main

raise SystemExit(main())
