-- Selects the alerts that fit into a page: transfer.PageBytes, 4 MiB.
-- $1 the account and $2 the metric after which; $3 the last account; $4 how many at most.
with page as (
	select account, metric, sum(bytes) over (order by account, metric) - bytes as before from (
		select account, metric, octet_length(state) as bytes from storageapi.alerts
		where (account, metric) > ($1, $2) and account <= $3 order by account, metric limit $4) p
)
select account, metric, a.state, a.due from page
cross join lateral (select state, due from storageapi.alerts where account = page.account and metric = page.metric limit 1) a
where before < 4194304 order by account, metric
