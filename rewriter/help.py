"""``rewrite --help``, its options by what they are for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from click import Context, HelpFormatter

#: What click calls its own option, whatever its version.
HELP: Final = "--help"
#: Every option by the name of its parameter, in the order in which they are shown.
SECTIONS: Final = {
    "What is replaced": (
        "passes",
        "bind",
        "keep",
        "library",
        "portable",
        "no_derived",
        "as_function",
        "strict",
    ),
    "What it is brought to": ("opset", "targets", "ir_version", "expand", "no_expand"),
    "What else changes": ("no_simplify", "simplify_timeout", "simplify_memory", "strip_debug"),
    "What it is verified with": (
        "no_verify",
        "samples",
        "seed",
        "dim",
        "input_range",
        "inputs",
        "verify_timeout",
        "verify_memory",
    ),
    "When values agree": ("atol", "rtol", "compare", "allow_unproved"),
    "More proof": ("against", "check_gradients", "operators", "runtimes"),
    "Instead of a rewrite": ("check", "explain", "list_passes"),
    "What is told": ("report", "quiet", "verbose", "debug", "version", HELP),
}


class Sectioned(click.Command):
    """A command that shows its options in ``SECTIONS``."""

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write each section; an option that stands in none is shown at the end rather than not at all."""
        options = {
            HELP if HELP in param.opts else str(param.name): param
            for param in self.get_params(ctx)
            if isinstance(param, click.Option)
        }
        listed = {name for names in SECTIONS.values() for name in names}
        others = tuple(name for name in options if name not in listed)
        for title, names in {**SECTIONS, "Others": others}.items():
            shown = (options[name].get_help_record(ctx) for name in names if name in options)
            rows = [row for row in shown if row is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
