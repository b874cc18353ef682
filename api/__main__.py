"""`python -m ziggurat`."""

import sys

from ziggurat.command import main

sys.exit(main())
