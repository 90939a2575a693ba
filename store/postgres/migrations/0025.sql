-- Nodes that look often need not be notified: notifications wake all that listen.
alter table storageapi.beats add column polls boolean;
insert into storageapi.versions (version, oldest) values (25, 9);
