-- Registers the node $1. Its heartbeat expires after $2, it has read all changes of transactions
-- before $3, and $4 is true if other nodes need not notify it.
with beat as (insert into storageapi.heartbeats (node, until, seen, busy) values ($1, clock_timestamp() + $2::interval, $3, $4))
insert into storageapi.nodes (node) values ($1)
