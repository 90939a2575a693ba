-- The end of a key's previous value. A node that does not know it gives a key another value and
-- leaves the hint as it was: that is then the hint of the value before.
alter table storageapi.keys add column previous_hint text;

create function storageapi.move_hint() returns trigger language plpgsql as $move$
begin
	new.previous_hint = case when new.previous = old.hash then old.hint end;
	new.hint = null;
	return new;
end
$move$;
create trigger keys_rotated before update of hash on storageapi.keys for each row
	when (new.hash <> old.hash and new.hint is not distinct from old.hint and new.previous_hint is not distinct from old.previous_hint)
	execute function storageapi.move_hint();

insert into storageapi.versions (version, oldest) values (17, 9);
