-- An account's events by type and time. Publishing waits while the index is made: some seconds
-- for each ten million events.
create index events_account on storageapi.events (account, type, event);
insert into storageapi.versions (version, oldest) values (16, 9);
