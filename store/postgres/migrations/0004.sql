-- Requests are looked up by one index only, whatever the planner knows of the table.
drop index storageapi.requests_at;
create index requests_at on storageapi.requests (at);
insert into storageapi.versions (version) values (4);
