package memory

import (
	"cmp"
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
)

// Accounts implements [transfer.Store].
func (s *Store) Accounts(ctx context.Context, after string, limit int) ([]string, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	all := make(map[string]bool)
	for account := range s.keys {
		all[account] = account > after
	}
	for account := range s.webhooks {
		all[account] = account > after
	}
	for name := range s.alerts {
		all[name.account] = name.account > after
	}
	maps.DeleteFunc(all, func(_ string, wanted bool) bool { return !wanted })
	accounts := slices.Sorted(maps.Keys(all))
	return accounts[:min(limit, len(accounts))], nil
}

// Export implements [transfer.Store]. For each page it scans all records of a kind, except for
// events.
func (s *Store) Export(ctx context.Context, account, after string, limit int) (transfer.Page, error) {
	if err := s.begin(ctx); err != nil {
		return transfer.Page{}, err
	}
	defer s.mu.Unlock()
	return transfer.Fill(after, limit, func(f *transfer.Filler, kind transfer.Kind, after []byte) error {
		switch kind {
		case transfer.KindEvent:
			return s.exportEvents(f, account, after)
		case transfer.KindAuditEntry:
			return s.exportAuditEntries(f, account, after)
		}
		rows := s.rows(kind, account)
		for _, name := range slices.Sorted(maps.Keys(rows)) {
			if name > string(after) && !f.Add([]byte(name), rows[name]) {
				break
			}
		}
		return nil
	})
}

// rows returns the account's records of a kind or, if account is empty, the records of all
// accounts. Each record has the same key in every call.
func (s *Store) rows(kind transfer.Kind, account string) map[string]transfer.Record {
	rows := make(map[string]transfer.Record)
	add := func(r transfer.Record, id ...string) {
		if account == "" || account == r.Owner() {
			rows[r.Owner()+"\x00"+strings.Join(id, "\x00")] = r
		}
	}
	switch kind {
	case transfer.KindKey:
		for _, of := range s.keys {
			for _, row := range of {
				add(&transfer.Key{Key: copyOfKey(row.record.Key), UsedAt: row.record.usedAt}, row.id)
			}
		}
	case transfer.KindWebhook:
		for _, of := range s.webhooks {
			for _, row := range of {
				add(&transfer.Webhook{Webhook: copyOf(*row.record)}, row.id)
			}
		}
	case transfer.KindRequest:
		for name, r := range s.keyRequests {
			add(r.exported(name, false), "key", name.id)
		}
		for name, r := range s.webhookRequests {
			add(r.exported(name, true), "webhook", name.id)
		}
	case transfer.KindAlert:
		for name, a := range s.alerts {
			add(&transfer.Alert{Account: name.account, Series: name.id, State: slices.Clone(a.state), Due: a.due}, name.id)
		}
	case transfer.KindDedupKey:
		for k := range s.dedupKeys {
			until := time.UnixMilli(k.until).UTC()
			add(&transfer.DedupKey{Account: k.account, DedupKey: driver.DedupKey{Key: k.key, Until: until}}, k.key, until.Format(time.RFC3339Nano))
		}
	case transfer.KindScan:
		if account == "" && len(s.scanState) > 0 {
			add(&transfer.Scan{State: slices.Clone(s.scanState)}, "scan")
		}
	case transfer.KindRecovery:
		for _, r := range s.recoveries {
			add(s.exportedRecovery(r), r.ID)
		}
	}
	return rows
}

func (r *request) exported(name ref, webhook bool) *transfer.Request {
	return &transfer.Request{Account: name.account, Webhook: webhook, IdempotencyKey: name.id, At: stored(r.at), Made: r.made, KeyID: r.by}
}

func (s *Store) exportedRecovery(r *recovery) *transfer.Recovery {
	exported := &transfer.Recovery{Recovery: r.Recovery}
	exported.States = slices.Clone(r.States)
	if r.Done || s.webhooks.find(r.Account, r.WebhookID) == nil {
		return exported
	}
	for _, e := range s.log[s.search(r.next):] {
		if e.Account == r.Account && e.find(r.WebhookID) != nil && s.events[ref{e.Account, e.ID}] == e {
			exported.NextEventID = e.ID
			break
		}
	}
	return exported
}

func (s *Store) exportEvents(f *transfer.Filler, account string, after []byte) error {
	begin := 0
	if after != nil {
		if len(after) != 8 {
			return transfer.ErrPosition
		}
		begin = s.search(binary.BigEndian.Uint64(after) + 1)
	}
	for _, e := range s.log[begin:] {
		row := binary.BigEndian.AppendUint64(nil, e.seq)
		more := false
		if account == "" || account == e.Account {
			more = f.Add(row, s.exportedEvent(e))
		} else {
			more = f.Skip(row)
		}
		if !more {
			break
		}
	}
	return nil
}

func (s *Store) exportAuditEntries(f *transfer.Filler, account string, after []byte) error {
	last := uint64(0)
	if len(after) == 8 {
		last = binary.BigEndian.Uint64(after)
	} else if after != nil {
		return transfer.ErrPosition
	}
	for _, n := range s.entries.order {
		row := binary.BigEndian.AppendUint64(nil, n.number)
		if n.number <= last || account != "" && account != n.Account {
			continue
		}
		if !f.Add(row, &transfer.AuditEntry{Entry: copiedAuditEntry(n.Entry), StoredAt: stored(n.at)}) {
			break
		}
	}
	return nil
}

func (s *Store) exportedEvent(e *event) *transfer.Event {
	now := time.Now()
	exported := &transfer.Event{
		EncodedEvent: e.EncodedEvent, PublishedAt: e.published, Matched: e.matched, NoBody: e.noBody,
		Forgotten: s.events[ref{e.Account, e.ID}] != e,
	}
	for _, d := range e.deliveries {
		to := transfer.Delivery{WebhookID: d.WebhookID, State: d.State, Attempts: slices.Clone(d.Attempts)}
		if d.State == driver.Pending {
			to.Made, to.Before, to.Recovered, to.First = d.made(), d.before, d.recovered, d.first
			if d.settled == driver.Delivered || d.settled == driver.Dead {
				to.Settled = d.settled
			}
			if to.AsPublished = to.Made == 0 && !d.recovered && !d.NextAttemptAt.After(e.published); !to.AsPublished {
				to.Wait = d.NextAttemptAt.Sub(stored(now))
			}
		}
		exported.Deliveries = append(exported.Deliveries, to)
	}
	slices.SortFunc(exported.Deliveries, func(a, b transfer.Delivery) int { return cmp.Compare(a.WebhookID, b.WebhookID) })
	return exported
}
