-- When a webhook was turned off; null if it is active, or was before this. Nodes that do not
-- know it leave it as it is. Making the index reads the table once.
alter table storageapi.webhooks add column off_at timestamptz;
create index webhooks_off on storageapi.webhooks (id) where not active;
insert into storageapi.versions (version, oldest) values (14, 9);
