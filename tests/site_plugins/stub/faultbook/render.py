"""As much of the package as the diagnosis box asks for."""


def as_markdown(found):
    return "## " + found["summary"]
