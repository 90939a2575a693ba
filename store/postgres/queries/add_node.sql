-- Adds the node $1, which lasts $2 without a heartbeat, and has read all changes before $3.
with beat as (insert into storageapi.beats (node, until, seen) values ($1, clock_timestamp() + $2::interval, $3))
insert into storageapi.nodes (node) values ($1)
