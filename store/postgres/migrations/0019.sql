-- The trail is listed in the order of commits: of an account, and of one target.
create index audit_account on storageapi.audit (account, number);
create index audit_target on storageapi.audit (account, target_kind, target_id, number);
insert into storageapi.versions (version, oldest) values (19, 9);
