-- Makes a pending delivery due now, or just before the webhook's oldest deliveries if these are due
-- earlier. So it is also first on a node that loads it later.
-- $1 the webhook; $2 the event.
update storageapi.pending set recovered = false, due = least((select storageapi.confirmed_clock()), (
	select min(due) - interval '1 millisecond' from (
		select due from storageapi.pending
		where webhook = $1 and event <> $2
		order by webhook, event limit 1000) oldest))
where webhook = $1 and event = $2
