"""The version of the distribution, in one place: the build, the command and the manifest read it here."""

VERSION = "0.1.0"
