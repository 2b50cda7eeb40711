"""Programs of PyPI at work, each in one process: what they do all day, in a small way.

Usage: pypi.py NAME SECONDS; NAME is that of a function below.

A function prepares what it needs, and returns what is one round of its work.
"""

import os
import sys
import tempfile
import time


def django():
    """A request through the whole stack: middleware, routing, the database, a template."""
    from django.conf import settings

    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        MIDDLEWARE=["django.middleware.common.CommonMiddleware", "django.middleware.csrf.CsrfViewMiddleware"],
        ROOT_URLCONF=__name__,
        SECRET_KEY="corpus",
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
    )
    import django as package

    package.setup()
    from django.db import connection
    from django.http import HttpResponse
    from django.template import engines
    from django.test import Client
    from django.urls import path

    template = engines["django"].from_string("{% for row in rows %}<p>{{ row.0|title }}</p>{% endfor %}")

    def view(request, number):
        with connection.cursor() as cursor:
            cursor.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n WHERE i < %s) SELECT i FROM n", [number])
            return HttpResponse(template.render({"rows": cursor.fetchall()}, request))

    global urlpatterns
    urlpatterns = [path("rows/<int:number>/", view)]
    client = Client()

    def request():
        assert client.get("/rows/50/").status_code == 200

    return request


def flask():
    """A request to a view that renders a template."""
    from flask import Flask, render_template_string

    app = Flask(__name__)

    @app.route("/rows/<int:number>")
    def rows(number):
        return render_template_string("{% for row in rows %}<p>{{ row }}</p>{% endfor %}", rows=range(number))

    client = app.test_client()

    def request():
        assert client.get("/rows/50").status_code == 200

    return request


def pandas():
    """Groups, with a function of Python's in each; a join."""
    import numpy
    import pandas as package

    random = numpy.random.default_rng(1)
    frame = package.DataFrame({"key": random.integers(0, 50, 20_000), "value": random.random(20_000)})

    def analyse():
        means = frame.groupby("key")["value"].apply(lambda group: group.sort_values().head(10).mean())
        frame.merge(means.rename("mean"), on="key").query("value > mean").describe()

    return analyse


def numpy():
    """Products of matrices, and a function of Python's called for each element."""
    import numpy as package

    matrix = package.random.default_rng(1).random((200, 200))
    square = package.vectorize(lambda value: value * value)

    def compute():
        package.linalg.svd(matrix @ matrix.T)
        square(matrix).sum()

    return compute


def sklearn():
    """A forest that is fitted and asked."""
    from sklearn.datasets import make_classification
    from sklearn.ensemble import RandomForestClassifier

    points, classes = make_classification(1_000, random_state=1)

    def learn():
        RandomForestClassifier(10, random_state=1).fit(points, classes).predict(points)

    return learn


def black():
    """Formats this file."""
    import black as package

    with open(__file__, encoding="utf-8") as file:
        source = file.read()
    return lambda: package.format_str(source, mode=package.Mode())


def mypy():
    """Checks a file, with all that it imports."""
    from mypy import api

    options = ["--no-incremental", "--cache-dir=/dev/null", "--ignore-missing-imports", __file__]
    return lambda: api.run(options)


def pytest():
    """Collects tests with fixtures and parameters, and runs them."""
    import pytest as package

    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "test_rows.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            "import pytest\n@pytest.fixture\ndef rows():\n    return list(range(100))\n"
            "@pytest.mark.parametrize('n', range(50))\ndef test_sum(rows, n):\n    assert sum(rows[:n]) == n * (n - 1) // 2\n"
        )

    def run():
        assert package.main(["-q", "-p", "no:cacheprovider", path]) == 0

    return run


def sphinx():
    """Builds a page."""
    from sphinx.application import Sphinx

    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "conf.py"), "w", encoding="utf-8") as file:
        file.write("project = 'corpus'\n")
    with open(os.path.join(folder, "index.rst"), "w", encoding="utf-8") as file:
        file.write("Rows\n====\n\n" + "".join(f"Row {i}\n------\n\nSee *row* :ref:`search` ``{i}``.\n\n" for i in range(100)))

    def build():
        output = os.path.join(folder, "out")
        Sphinx(folder, folder, output, output, "html", freshenv=True, status=None, warning=None).build(True)

    return build


def sympy():
    """Integrals, simplification and factors, without what the package remembers."""
    import sympy as package
    from sympy.core.cache import clear_cache

    x, y = package.symbols("x y")

    def solve():
        clear_cache()
        package.integrate(package.sin(x) * package.exp(x) * x**2, x)
        package.simplify((x**3 + 3 * x**2 * y + y**3).expand() / (x + y))
        package.factor(x**8 - y**8)
        package.series(package.tan(x) * package.exp(package.sin(x)), x, 0, 6)

    return solve


def sqlglot():
    """A query in other dialects, and optimized."""
    import sqlglot as package
    from sqlglot.optimizer import optimize

    query = (
        "WITH a AS (SELECT x.a, SUM(x.b) AS b FROM x JOIN y ON x.b = y.b WHERE x.a > 1 GROUP BY x.a), "
        "c AS (SELECT * FROM a WHERE b IN (1, 2, 3)) "
        "SELECT c.a, CASE WHEN c.b > 3 THEN 'x' ELSE 'y' END AS k FROM c LEFT JOIN y ON y.b = c.b ORDER BY 1 LIMIT 10"
    )

    def translate():
        for dialect in ("duckdb", "bigquery", "snowflake", "spark"):
            package.transpile(query, write=dialect, pretty=True)
        optimize(query, schema={"x": {"a": "int", "b": "int"}, "y": {"b": "int", "c": "int"}}).sql()

    return translate


def asyncio():
    """A server and its clients, in one loop."""
    import asyncio as package
    import json

    async def answer(reader, writer):
        while line := await reader.readline():
            writer.write(json.dumps(sorted(json.loads(line))).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def ask(port):
        reader, writer = await package.open_connection("127.0.0.1", port)
        for _ in range(50):
            writer.write(json.dumps(list(range(100, 0, -1))).encode() + b"\n")
            await reader.readline()
        writer.close()

    async def serve():
        server = await package.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            await package.gather(*(ask(port) for _ in range(10)))

    return lambda: package.run(serve())


def main():
    """Rounds of one, as long as there is time."""
    work = globals()[sys.argv[1]]()
    until = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < until:
        work()


if __name__ == "__main__":
    main()
