-- Is the heartbeat of the node $1, which lasts $2, has read all changes before $3, and if $4 need not be
-- notified. It changes nothing if the node was removed.
update storageapi.heartbeats set until = clock_timestamp() + $2::interval, beat = beat + 1, seen = greatest(seen, $3), busy = $4
where node = $1
