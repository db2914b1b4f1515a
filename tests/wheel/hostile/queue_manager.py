"""What somebody else has under a name that is also a folder of ours."""

raise ImportError(f"{__name__} was imported from the working directory")
