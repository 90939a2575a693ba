package postgres

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/driver"
)

// An event's number is the time of publishing, in microseconds since epoch, times perMicrosecond,
// plus a counter within the microsecond. Numbers last until 2091.
const perMicrosecond = 4096

var epoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// numberAt truncates t to the millisecond, and returns the lowest number of an event published at
// that time or later.
func numberAt(t time.Time) int64 {
	switch ms := utc(t).UnixMilli() - epoch.UnixMilli(); {
	case ms <= 0:
		return 0
	case ms >= math.MaxInt64/perMicrosecond/1000:
		return math.MaxInt64
	default:
		return ms * 1000 * perMicrosecond
	}
}

// publishedAt returns the time of publishing from an event's number.
func publishedAt(number int64) time.Time {
	return epoch.Add(time.Duration(number/perMicrosecond) * time.Microsecond).Truncate(time.Millisecond)
}

var (
	enqueueMany     = query("enqueue")
	enqueueOne      = strings.Replace(enqueueMany, manyEvents, oneEvent, 1)
	nextEventNumber = query("next_event_number")
)

// A single event is passed as values rather than in arrays, because the planner would plan again
// for each array length.
const (
	manyEvents = `unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::bytea[], $6::smallint[], $7::text[], $11::text[], $12::text[]) with ordinality`
	oneEvent   = `(values ($1::text, $2::text, $3::text, $4::timestamptz, $5::bytea, $6::smallint, $7::text, $11::text, $12::text, 1))`
)

// An addedEvent is a result row of enqueueMany.
type addedEvent struct{ Place, Deliveries int }

// eventColumns are the parameters of enqueueMany.
func eventColumns(events []*publication, latest time.Time) []any {
	return []any{
		column(events, func(e *publication) string { return e.Account }),
		column(events, func(e *publication) string { return e.ID }),
		column(events, func(e *publication) string { return string(e.Type) }),
		column(events, func(e *publication) time.Time { return utc(e.Timestamp) }),
		column(events, func(e *publication) []byte { return storedBody(e.EncodedEvent) }),
		column(events, func(e *publication) int16 { return shardOf(e.Account) }),
		column(events, func(e *publication) string { return e.TraceContext }),
		changeAdded, "", latest,
		column(events, func(e *publication) string { return e.Resource }),
		column(events, func(e *publication) string { return string(e.Scope) }),
	}
}

func scanAdded(row pgx.Row) (e addedEvent, err error) {
	err = row.Scan(&e.Place, &e.Deliveries)
	return e, err
}

// matchedOf looks up events by their accounts $1 and ids $2, which are parallel lists. For each
// known event it selects the initial number of deliveries and the place in the lists.
var matchedOf = `
	select r.place::integer - 1, e.matched
	from unnest((select $1::text[]), (select $2::text[])) with ordinality as r (account, id, place)
	cross join lateral (` + strings.ReplaceAll(strings.ReplaceAll(eventOf, "$1", "r.account"), "$2", "r.id") + `) i
	cross join lateral (select matched from storageapi.event_log where event between i.event and i.event order by event limit 1) e`

// enqueue stores an event for all subscribed webhooks or, if only is not empty, for the webhook
// with that ID. It returns the event's initial number of deliveries, and whether the event is new.
func (s *Store) enqueue(ctx context.Context, db rowQuerier, encoded *driver.EncodedEvent, only string) (deliveries int, isNew bool, err error) {
	for try := 1; ; try++ {
		var place int
		err := db.QueryRow(ctx, s.sql(enqueueOne), encoded.Account, encoded.ID, string(encoded.Type), utc(encoded.Timestamp),
			storedBody(encoded), shardOf(encoded.Account), encoded.TraceContext, changeAdded, only, s.clock.latest(), encoded.Resource, string(encoded.Scope)).Scan(&place, &deliveries)
		if !errors.Is(err, pgx.ErrNoRows) {
			return deliveries, true, err
		}
		err = db.QueryRow(ctx, s.sql(matchedOf), []string{encoded.Account}, []string{encoded.ID}).Scan(&place, &deliveries)
		if errors.Is(err, pgx.ErrNoRows) {
			if is, failed := s.isErasing(ctx, db, encoded.Account); is || failed != nil {
				return 0, false, cmp.Or(failed, auth.ErrErasing)
			}
		}
		if !errors.Is(err, pgx.ErrNoRows) || try == maxTries { // otherwise the event was purged between the two statements
			return deliveries, false, err
		}
	}
}

// storedBody returns the column value of a body, which must not be null.
func storedBody(encoded *driver.EncodedEvent) []byte {
	if encoded.Body == nil {
		return []byte{}
	}
	return encoded.Body
}

// numberAfter rounds t up to the millisecond, and returns the lowest number of an event published
// at that time or later.
func numberAfter(t time.Time) int64 {
	if from := utc(t); !from.Equal(t) {
		t = from.Add(time.Millisecond)
	}
	return numberAt(t)
}

// none converts pgx.ErrNoRows to ErrNotFound.
func none(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return apierr.ErrNotFound
	}
	return err
}
