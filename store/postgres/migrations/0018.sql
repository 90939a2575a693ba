-- The trace that an event was published in, for the spans of its attempts. Nodes that do not know
-- it store none.
alter table storageapi.events add column trace text;
insert into storageapi.versions (version, oldest) values (18, 9);
