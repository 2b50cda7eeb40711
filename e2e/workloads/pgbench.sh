#!/bin/sh
# A server of PostgreSQL in the current folder, and pgbench: pgbench.sh SECONDS [OPTIONS OF PGBENCH]. As root, both run as nobody:
# the server refuses to run as root. A file `ready` says that pgbench runs.
set -eu
seconds=$1
shift
programs=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
as_nobody=
if [ "$(id -u)" -eq 0 ]; then
    # The folder is of a test that runs as root.
    chmod a+x ..
    chown nobody .
    as_nobody="setpriv --reuid=nobody --regid=nogroup --clear-groups"
fi
run() { program=$1; shift; $as_nobody "$programs/$program" "$@"; }
run initdb --pgdata=data --auth=trust --username=corpus --no-sync >log
run postgres -D data -k "$PWD" -c listen_addresses= -c fsync=off >>log 2>&1 &
export PGHOST="$PWD" PGUSER=corpus PGDATABASE=postgres
until run pg_isready --quiet; do sleep 0.1; done
run pgbench --initialize --scale=4 --quiet >>log 2>&1
touch ready
run pgbench --client=8 --time="$seconds" "$@"
