package webhooks_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/testbubble"
)

// A process that starts with a backlog does not yet know the usual latency. It sends each event
// once to slow receivers that have accepted an event before. Some receivers that have not
// accepted any get an event twice: until the usual latency is known, they look like receivers
// that hang.
func TestColdStartSendsOnce(t *testing.T) {
	const accounts, events = 150, 2
	webhooks := 1500
	if testbubble.Raced {
		webhooks = 600
	}
	for _, test := range []struct {
		takes  time.Duration
		proven bool
		twice  int // maximum number of deliveries sent twice
	}{
		{300 * time.Millisecond, true, 0},
		{800 * time.Millisecond, true, 0},
		{120 * time.Millisecond, false, 0},
		{250 * time.Millisecond, false, 1500},
	} {
		t.Run(fmt.Sprintf("%v, proven %v", test.takes, test.proven), func(t *testing.T) {
			testbubble.Run(t, func(t *testing.T) {
				s := newStorm(t, 0, accounts, "")
				s.dial = s.serve(func(http.ResponseWriter, *http.Request) { time.Sleep(test.takes) })
				s.restart()
				for i := range webhooks {
					s.subscribeFor(s.account(i), fmt.Sprint("host", i))
				}
				publish := func() {
					for i := range accounts {
						s.publishFor(s.account(i))
					}
				}
				if test.proven {
					stop := s.start()
					publish()
					time.Sleep(time.Minute)
					stop()
				}
				before := len(s.hits.of(""))

				s.restart()
				for range events {
					publish()
				}
				stop := s.start()
				time.Sleep(time.Minute)
				stop()
				if n := len(s.hits.of("")) - before; n < events*webhooks || n > events*webhooks+test.twice {
					t.Errorf("%d requests for %d deliveries, want at most %d more", n, events*webhooks, test.twice)
				}
			})
		})
	}
}
