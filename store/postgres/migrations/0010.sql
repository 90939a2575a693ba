-- What will be known of a key: the end of its value, who made it, when it was disabled, by
-- whom and why, the host's labels, the networks it may be used from, and its own rate limit.
-- A key's rows agree: a row of a previous hash takes what it has from the key, also if a
-- node adds it that does not know these columns. The hint is the present value's.
alter table storageapi.keys add column hint text, add column created_by text,
	add column disabled_at timestamptz, add column disabled_by text, add column disabled_reason text,
	add column labels jsonb, add column networks cidr[], add column rate_limit jsonb;

create function storageapi.complete_key() returns trigger language plpgsql as $complete$
begin
	select k.created_by, k.disabled_at, k.disabled_by, k.disabled_reason, k.labels, k.networks, k.rate_limit
		into new.created_by, new.disabled_at, new.disabled_by, new.disabled_reason, new.labels, new.networks, new.rate_limit
		from storageapi.keys k where k.account = new.account and k.id = new.id and k.next is null;
	return new;
end
$complete$;
create trigger keys_previous before insert on storageapi.keys for each row
	when (new.next is not null) execute function storageapi.complete_key();

insert into storageapi.versions (version, oldest) values (10, 9);
