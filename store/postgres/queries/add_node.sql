-- Adds the node $1, which lasts $2 without a heartbeat.
with beat as (insert into storageapi.beats (node, until) values ($1, clock_timestamp() + $2::interval))
insert into storageapi.nodes (node) values ($1)
