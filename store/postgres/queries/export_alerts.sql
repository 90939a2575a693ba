-- Selects the alerts after a place that fit into a page of transfer.PageBytes, 4 MiB.
-- $1 the account and $2 the series of the place; $3 the last account; $4 the maximum number.
with page as (
	select account, series, sum(bytes) over (order by account, series) - bytes as before from (
		select account, series, octet_length(state) as bytes from storageapi.alerts
		where (account, series) > ($1, $2) and account <= $3 order by account, series limit $4) p
)
select account, series, a.state, a.due from page
cross join lateral (select state, due from storageapi.alerts where account = page.account and series = page.series limit 1) a
where before < 4194304 order by account, series
