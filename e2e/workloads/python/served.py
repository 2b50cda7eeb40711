"""What a server that embeds Python runs (workloads/embeds.c)."""

from leaf import burn


def handle(_request):
    """Called by the server for each request."""
    return respond()


def respond():
    """Called by Python."""
    return burn()
