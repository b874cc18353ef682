"""The command line, a module for each kind of command."""

from ziggurat.cli.commands import main as main
