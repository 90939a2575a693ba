-- Of a webhook that fails, the first event that did, and whether another one has.
alter table storageapi.webhooks add column failing_event text collate "C" not null default '', add column failed_again boolean not null default false;
create index webhooks_failing on storageapi.webhooks (id) where failed_again and active;
insert into storageapi.versions (version) values (5);
