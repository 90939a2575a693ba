-- What grows will be in parts by time, and what was there before is a part of its own: layout 0.
-- Nodes that do not know the column write only there. The checks are of new rows for now.
alter table storageapi.events add column layout smallint not null default 0, add constraint events_layout check (layout = 0) not valid;
alter table storageapi.attempts add column layout smallint not null default 0, add constraint attempts_layout check (layout = 0) not valid;
alter table storageapi.failures add column layout smallint not null default 0, add constraint failures_layout check (layout = 0) not valid;
insert into storageapi.versions (version, oldest) values (21, 9);
