-- Whether a webhook is on hold after a restore: nothing is sent to it. Null is that it is not.
-- Making the index reads the table once.
alter table storageapi.webhooks add column held boolean;
create index webhooks_held on storageapi.webhooks (id) where held;
insert into storageapi.versions (version, oldest) values (12, 9);
