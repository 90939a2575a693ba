-- Lists audit entries of an account, the newest first, down to a number. Of a target there is its id, $9, too.
-- $1 the account; $2 the number that they are below; $3 the least number; $4 a kind of target, empty: all; $5 actions, none: all; $6 and $7 since and until
-- when, null: any time; $8 how many.
select number, account, id, pending, at, action, target_kind, target_id, fields
from storageapi.audit
where account = $1 and number < $2 and number >= $3 and ($4 = '' or target_kind = $4)
	and ($5::text[] = '{}' or action = any($5::text[]))
	and ($6::timestamptz is null or at >= $6) and ($7::timestamptz is null or at < $7)
order by number desc limit $8
