-- Everything lives in one schema. Ids and accounts are compared byte by byte.

create table storageapi.versions (
	version    integer primary key,
	applied_at timestamptz not null default clock_timestamp()
);
insert into storageapi.versions (version) values (1);

-- What an account's creations wait for: the limits are counted under its row.
create table storageapi.accounts (
	account text collate "C" primary key
);

-- A row for each hash that finds a key: its present one and, while it has any, its
-- previous one, which next tells what took its place. The rest is the same in both: a
-- request looks up one row.
create table storageapi.keys (
	hash                bytea primary key,
	next                bytea,
	account             text collate "C" not null,
	id                  text collate "C" not null,
	name                text not null,
	scopes              text[] not null,
	created_at          timestamptz not null,
	expires_at          timestamptz,
	previous            bytea,
	previous_expires_at timestamptz
);
create unique index keys_account on storageapi.keys (account, id) where next is null;

-- Apart from the keys, which must not churn. An empty hash stands for the key itself.
create table storageapi.key_uses (
	account text collate "C" not null,
	id      text collate "C" not null,
	hash    bytea not null,
	at      timestamptz not null,
	primary key (account, id, hash)
) with (fillfactor = 50);

-- Requests that made something, of each kind.
create table storageapi.requests (
	kind    smallint not null,
	account text collate "C" not null,
	name    text collate "C" not null,
	id      text collate "C" not null,
	sum     bytea not null,
	at      timestamptz not null,
	primary key (kind, account, name)
);
create index requests_at on storageapi.requests (kind, at);

create table storageapi.webhooks (
	no                         bigint generated always as identity primary key,
	account                    text collate "C" not null,
	id                         text collate "C" not null unique,
	shard                      smallint not null,
	url                        text not null,
	events                     text[] not null,
	past_events                text[] not null,
	active                     boolean not null,
	off_reason                 text not null,
	failing_since              timestamptz,
	warned_at                  timestamptz,
	rests_until                timestamptz,
	balance_threshold          bigint not null,
	secret                     bytea not null,
	created_at                 timestamptz not null,
	previous_secret            bytea,
	previous_secret_expires_at timestamptz,
	version                    bigint not null default 0 -- of all this
) with (fillfactor = 70);
create unique index webhooks_account on storageapi.webhooks (account, id);

-- Webhooks that were deleted, for as long as something tells of them.
create table storageapi.past_webhooks (
	no         bigint primary key,
	account    text collate "C" not null,
	id         text collate "C" not null,
	deleted_at timestamptz not null
);
create index past_webhooks_account on storageapi.past_webhooks (account);

-- An event's number is the microsecond in which it was published, counted from
-- 2020, and 12 bits that tell apart those of one microsecond. What is for nobody
-- has no body.
create table storageapi.events (
	event   bigint primary key,
	account text collate "C" not null,
	id      text collate "C" not null,
	type    text not null,
	at      timestamptz not null,
	matched integer not null,
	known   boolean not null default true,
	body    bytea
);
create unique index events_known on storageapi.events (account, id) where known;
create sequence storageapi.event_clock minvalue 0;
create sequence storageapi.event_numbers cycle minvalue 0 maxvalue 4095 cache 1;

-- Events whose body was purged while an attempt was under way.
create table storageapi.expiring (
	event bigint primary key
);

-- What is owed. Of a lane, which is a webhook and a kind, what is not parked is
-- ready. Kind 0 is live, 1 recovered; 2 and 3 are the same of webhooks that have no
-- attempts for now, which claims have put aside.
create table storageapi.queue (
	webhook  bigint not null,
	event    bigint not null,
	shard    smallint not null,
	kind     smallint not null,
	parked   boolean not null,
	due      timestamptz not null,
	attempts integer not null,
	before   integer not null,
	primary key (webhook, event)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
	autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000,
	autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
create index queue_ready on storageapi.queue (kind, shard, webhook, due, event) where not parked;
create index queue_parked on storageapi.queue (due) where parked;

-- What is leased: rows come and go, and never change. The queue is not written to
-- by a claim. When the database crashes this is empty: what was leased is due.
create unlogged table storageapi.leases (
	token   bigint primary key,
	shard   smallint not null,
	webhook bigint not null,
	event   bigint not null,
	account text collate "C" not null,
	until   timestamptz not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
	autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);
create unique index leases_place on storageapi.leases (account, webhook, event);

-- Claims lock the shards that they claim from; an account is in one shard.
create table storageapi.shards (
	shard smallint primary key
);
insert into storageapi.shards select generate_series(0, 15);

-- The log. State is that of the delivery after the attempt: 0 pending, 1
-- delivered, 2 dead; 3 is a skipped delivery, number 0, and no attempt.
create table storageapi.attempts (
	event      bigint not null,
	webhook    bigint not null,
	number     integer not null,
	state      smallint not null,
	started_at timestamptz,
	took       bigint not null,
	status     integer not null,
	class      text not null,
	error      text not null,
	response   text not null,
	primary key (webhook, event, number)
);

create table storageapi.recoveries (
	no         bigint generated always as identity primary key,
	id         text collate "C" not null unique,
	account    text collate "C" not null,
	webhook    bigint not null,
	webhook_id text collate "C" not null,
	states     text[] not null,
	from_at    timestamptz,
	to_at      timestamptz not null,
	created_at timestamptz not null,
	recovered  integer not null default 0,
	done       boolean not null default false,
	next       bigint not null default 0,
	turn       bigint not null default 0
);
create unique index recoveries_undone on storageapi.recoveries (webhook) where not done;

create table storageapi.alerts (
	account text collate "C" not null,
	metric  text collate "C" not null,
	state   bytea not null,
	due     boolean not null default false,
	primary key (account, metric)
) with (fillfactor = 70);
create index alerts_due on storageapi.alerts (account) where due;

create table storageapi.notices (
	account text collate "C" not null,
	key     text collate "C" not null,
	until   timestamptz not null,
	primary key (account, key, until)
);
create index notices_until on storageapi.notices (until);

-- How far housekeeping has come, by event, which it locks meanwhile, and which keys
-- seal the signing secrets: no event before payloads has a body, none before attempts
-- has any, and the id of none before ids is known.
-- The seal of the cursors is what hides events' numbers in them.
create table storageapi.marks (
	name  text primary key,
	event bigint,
	seal  bytea
);
insert into storageapi.marks (name, event) values ('payloads', 0), ('attempts', 0), ('ids', 0), ('recoveries', null), ('seal', null);
insert into storageapi.marks (name, seal) values ('cursors', sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));
