package record

import (
	"encoding/binary"
	"time"

	"github.com/storageapi/storageapi/store/driver"
)

// An Event is a stored event without its body.
type Event struct {
	driver.EncodedEvent
	PublishedAt time.Time
	Deliveries  int // number of pending deliveries when the event was published

	// NoBody means that the event was imported after its body had been purged. Forgotten means
	// that its ID had been purged, too.
	NoBody, Forgotten bool
}

const (
	eventPurged = 2 // a byte of flags; even, so that older versions treat the ID as known
	eventTrace  = 4 // the trace context; even, so that older versions ignore it

	eventResource = 5 // odd, since older versions must not send the event to limited webhooks
)

// AppendEvent appends the record of an event. The record begins with fixed-size fields that
// [SetPublished] fills in once the event is stored.
func AppendEvent(record []byte, event *driver.EncodedEvent) []byte {
	e := append(encoder(record), Version)
	e.raw(make([]byte, 12))
	e.time(event.Timestamp)
	e.string(string(event.Type))
	e.string(event.ID)
	e.string(event.Account)
	if event.TraceContext != "" {
		e.uint(eventTrace)
		e.string(event.TraceContext)
	}
	if event.Resource != "" {
		e.uint(eventResource)
		e.string(event.Resource)
	}
	return e
}

// AppendPurged appends a field to an event's record that marks the missing parts of the event.
func AppendPurged(record []byte, noBody, forgotten bool) []byte {
	flags := byte(0)
	if noBody {
		flags |= 1
	}
	if forgotten {
		flags |= 2
	}
	if flags == 0 {
		return record
	}
	e := encoder(record)
	e.field(eventPurged, flags)
	return e
}

// SetPublished sets the event's publication time and its number of deliveries pending at that
// time.
func SetPublished(record []byte, at time.Time, deliveries int) {
	binary.BigEndian.PutUint64(record[1:], uint64(at.UnixMilli()))
	binary.BigEndian.PutUint32(record[9:], uint32(deliveries))
}

func decodeEvent(record []byte) (Event, error) {
	var event Event
	d := newDecoder(record)
	if fixed := d.raw(12); fixed != nil {
		event.PublishedAt = time.UnixMilli(int64(binary.BigEndian.Uint64(fixed))).UTC()
		event.Deliveries = int(binary.BigEndian.Uint32(fixed[8:]))
	}
	event.Timestamp = d.time()
	event.Type = driver.EventType(d.string())
	event.ID = d.string()
	event.Account = d.string()
	d.fields(func(tag uint64, value []byte) bool {
		switch {
		case tag == eventPurged && len(value) == 1:
			event.NoBody, event.Forgotten = value[0]&1 != 0, value[0]&2 != 0
		case tag == eventTrace:
			event.TraceContext = string(value)
		case tag == eventResource:
			event.Resource = string(value)
		default:
			return false
		}
		return true
	})
	if err := d.err(); err != nil {
		return Event{}, err
	}
	return event, nil
}
