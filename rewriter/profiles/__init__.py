"""What each runtime takes: one table that ``--target``, ``--check``, ``--runtimes`` and the report share.

:func:`table` gives the built-in profiles (``data/runtimes.json``).  :func:`wanted` reads what ``--target`` names: rows
of the table, by name and version, or TOML files in the same form.
"""

from rewriter.profiles.names import Aim, wanted
from rewriter.profiles.profile import Gap, Profile
from rewriter.profiles.table import profiles, table

__all__ = ["Aim", "Gap", "Profile", "profiles", "table", "wanted"]
