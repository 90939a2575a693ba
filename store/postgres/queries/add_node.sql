-- Adds the node $1, which lasts $2 without a heartbeat, has read all changes before $3, and if $4 need not be
-- notified.
with beat as (insert into storageapi.heartbeats (node, until, seen, busy) values ($1, clock_timestamp() + $2::interval, $3, $4))
insert into storageapi.nodes (node) values ($1)
