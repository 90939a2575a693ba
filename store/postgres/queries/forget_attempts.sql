-- Deletes the oldest attempts of a delivery, once a newer attempt is logged. It is a separate
-- statement, for the few deliveries with so many attempts: as a part of settle.sql, it was planned
-- to read all attempts.
-- $1 the webhook; $2 the event; $3 the number of the logged attempt; $4 how many attempts are kept.
delete from storageapi.attempt_log
where webhook = $1 and event = $2 and number between 1 and $3::integer - $4::integer
	and exists (select from storageapi.attempt_log where webhook = $1 and event = $2 and number = $3)
