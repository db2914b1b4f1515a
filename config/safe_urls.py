"""URLs that secrets are sent to, or keys come from."""

from urllib.parse import urlsplit


def check_url(url: str) -> str:
    """Give `url` back if secrets may go there: https, or http on this machine; else raise ValueError."""
    parts = urlsplit(url)
    is_local = is_of_this_machine(url)
    if url and not (parts.hostname and (parts.scheme == "https" or (parts.scheme == "http" and is_local))):
        raise ValueError("must begin with https://, or with http:// and a name of this machine")
    if "@" in parts.netloc:  # the address is shown; a token may stand where a user does
        raise ValueError("must not have a user or password in it")
    return url


def is_of_this_machine(url: str) -> bool:
    """Return whether what is sent there does not leave this machine."""
    return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")
