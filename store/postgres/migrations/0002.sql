-- What was applied is known by its checksum, which is noted with each version.
alter table storageapi.versions add column checksum bytea;
insert into storageapi.versions (version) values (2);
