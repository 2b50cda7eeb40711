# Trees, sorting, regular expressions and JSON: code that PyPy compiles and its collector's work, for as many seconds as the
# argument says.
import json
import re
import sys
import time


class Node:
    def __init__(self, left, right):
        self.left = left
        self.right = right


def tree(depth):
    return Node(tree(depth - 1), tree(depth - 1)) if depth else None


def count(node):
    return 0 if node is None else 1 + count(node.left) + count(node.right)


def sort(length):
    values = [(i * 7919) % length for i in range(length)]
    values.sort(key=lambda value: -value)


def words(text):
    counts = {}
    for word in re.split(r"\W+", text):
        counts[word] = counts.get(word, 0) + 1


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


TEXT = " ".join("w%d" % (i % 1000) for i in range(20000))
end = time.time() + float(sys.argv[1])
while time.time() < end:
    count(tree(14))
    sort(50000)
    words(TEXT)
    fibonacci(22)
    json.loads(json.dumps([{"a": i} for i in range(5000)]))
