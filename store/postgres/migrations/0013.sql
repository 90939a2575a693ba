-- Accounts that are being erased: nothing is added to them meanwhile. What was removed so
-- far is counted by kind. Nodes of older versions do not look here: what they add to the
-- account before its erasure is complete is removed, too, if the erasure finds it.
create table storageapi.erasures (
	account text collate "C" primary key,
	counts  bigint[] not null
);
insert into storageapi.versions (version, oldest) values (13, 9);
