# A database that runs, and three futures of it.
coppice create db --driver gvisor -e PGUSER=postgres
coppice exec db -- sh -s < docs/examples/postgres.sh
# One instant, three running copies
coppice fork db --memory --count 3 --prefix try
coppice exec try-1 -- psql -Atc 'delete from trees where height < 30; select count(*) from trees'
coppice exec try-2 -- psql -Atc 'drop table trees'
coppice exec try-3 -- psql -Atc 'select count(*) from trees'
# The original never noticed
coppice exec db -- psql -Atc 'select count(*) from trees'
