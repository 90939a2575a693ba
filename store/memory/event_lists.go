package memory

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/driver"
)

// EventByID implements [driver.WebhookStore].
func (s *Store) EventByID(ctx context.Context, account, eventID string) (found driver.EncodedEvent, publishedAt time.Time, err error) {
	if err := s.begin(ctx); err != nil {
		return found, publishedAt, err
	}
	defer s.mu.Unlock()
	e := s.events[ref{account, eventID}]
	if e == nil {
		return found, publishedAt, apierr.ErrNotFound
	}
	found = e.EncodedEvent
	found.Body = bytes.Clone(found.Body) // the caller must not be able to change the stored body
	return found, e.published, nil
}

// ListEvents implements [driver.WebhookStore]. It scans all events.
func (s *Store) ListEvents(ctx context.Context, account string, query driver.EventQuery) (driver.EventPage, error) {
	if err := s.begin(ctx); err != nil {
		return driver.EventPage{}, err
	}
	defer s.mu.Unlock()
	if query.WebhookID != "" && s.webhooks.find(account, query.WebhookID) == nil {
		return driver.EventPage{}, apierr.ErrNotFound
	}
	log := slices.Clone(s.log)
	if after, ok := s.cursors.Decode(query.After); ok || query.After != "" && !query.OldestFirst {
		if at := s.search(after); query.OldestFirst {
			log = log[at:]
		} else {
			log = log[:at]
		}
	}
	var page driver.EventPage
	if query.OldestFirst {
		page.Resume = s.cursors.Encode(s.lastSeq + 1)
	} else {
		slices.Reverse(log)
	}
	var last uint64
	for _, e := range log {
		listed := driver.StoredEvent{ID: e.ID, Type: e.Type, Resource: e.Resource, Timestamp: e.Timestamp, PublishedAt: e.published, HasBody: !e.noBody}
		if e.Account != account || !query.Matches(&listed) || query.WebhookID != "" && e.find(query.WebhookID) == nil {
			continue
		}
		if len(page.Events) == query.Limit {
			if page.Next = s.cursors.Encode(last); query.OldestFirst {
				page.Next = s.cursors.Encode(last + 1)
				page.Resume = page.Next
			}
			break
		}
		page.Events = append(page.Events, listed)
		last = e.seq
	}
	return page, nil
}
