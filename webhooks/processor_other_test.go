//go:build !unix

package webhooks_test

import "time"

func processorTime() time.Duration { return 0 }
