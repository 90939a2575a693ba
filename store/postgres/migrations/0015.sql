-- What happened to keys and webhooks: the audit trail, and of what is pending what the host
-- is to be told. A number is given once the target is locked: of two notices of one target
-- the one that is committed later has the greater. Nodes that do not know it write none.
create table storageapi.audit (
	account        text collate "C" not null,
	id             text collate "C" not null,
	number         bigint not null generated always as identity,
	stored_at      timestamptz not null default clock_timestamp(),
	pending        boolean not null,
	at             timestamptz not null,
	action         text not null,
	target_kind    text not null,
	target_id      text collate "C" not null,
	actor_kind     text not null,
	actor_id       text not null,
	changed        text[] not null,
	request_id     text not null,
	client_address text not null,
	object         text not null,
	reason         text not null,
	since          timestamptz,
	until          timestamptz,
	primary key (account, id)
);
create index audit_pending on storageapi.audit (number) where pending;
create index audit_stored_at on storageapi.audit (stored_at);

-- The lease of the node that tells the host: one row at most.
create table storageapi.audit_lease (
	one    boolean primary key default true check (one),
	holder text not null,
	until  timestamptz not null
);
insert into storageapi.versions (version, oldest) values (15, 9);
