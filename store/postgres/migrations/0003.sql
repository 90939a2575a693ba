-- When a webhook's receiver first took an event at its URL; when the next attempt that
-- somebody asked for may be made, and when the last one was. Not of its version.
alter table storageapi.webhooks add column proven_at timestamptz, add column probe_at timestamptz, add column probed_at timestamptz;
create index webhooks_probe on storageapi.webhooks (probe_at) where probe_at is not null;
insert into storageapi.versions (version) values (3);
