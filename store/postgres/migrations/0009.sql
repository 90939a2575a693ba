-- With each version the oldest that can use the schema once it was applied. An older one,
-- which does not know the schema's version, starts if it is not older than that. Versions
-- up to this one name none: they use no schema that is newer than they are.
alter table storageapi.versions add column oldest integer check (oldest <= version);
insert into storageapi.versions (version, oldest) values (9, 9);
