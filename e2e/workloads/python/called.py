"""What a program in Java that embeds Python calls (workloads/Embeds.java), and what calls that back."""


def handle(depth, call_back):
    """Called by Java, through native code."""
    return respond(depth, call_back)


def respond(depth, call_back):
    """Calls Java, through native code."""
    if depth == 0:
        burn()
    call_back(depth)


def burn():
    """Computes. It needs no module of native code, which would not find libpython's symbols within Java."""
    value = 1
    for number in range(20_000):
        value = (value * 31 + number) & 0xFFFF
    return value
