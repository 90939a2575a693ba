-- Renews the heartbeat of the node $1, which now expires after $2. The node has read all changes of
-- transactions before $3, and $4 is true if other nodes need not notify it. If the node was
-- removed, nothing changes.
update storageapi.heartbeats set until = clock_timestamp() + $2::interval, beat = beat + 1, seen = greatest(seen, $3), busy = $4
where node = $1
