# Starts PostgreSQL in a sandbox, with a table of 100,000 trees: coppice exec db -- sh -s < docs/examples/postgres.sh
set -eu
PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
id postgres >/dev/null 2>&1 || useradd --home-dir /workspace postgres
mkdir -p /workspace/db /run/postgresql
chown postgres /workspace/db /run/postgresql
cd /workspace
as_postgres() { su postgres -c "PATH='$PATH' $*"; }
as_postgres initdb --pgdata=db --auth=trust >/dev/null
as_postgres pg_ctl --pgdata=db --log=db/log --wait start >/dev/null
psql --quiet --username=postgres --command='create table trees as select n as id, n % 40 as height from generate_series(1, 100000) n'
echo "$(psql --username=postgres --tuples-only --no-align --command='select version()' | cut -d' ' -f1,2) is running"
