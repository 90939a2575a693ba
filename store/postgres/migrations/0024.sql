-- What is pending in a shard, by event: of what lost its payload the oldest ends first. Publishing
-- and settling wait while the index is made: about a second a million deliveries. It is of event + 0, so
-- that no lookup of an event takes it.
create index pending_shard_event on storageapi.pending (shard, (event + 0));
drop index storageapi.pending_shard;
insert into storageapi.versions (version, oldest) values (24, 9);
