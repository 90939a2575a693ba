package scheduler

import "testing"

func TestForget_IdleWebhook_IsForgottenAtOnce(t *testing.T) {
	inBench(t, Config{}, func(b *bench) {
		b.add("w", 1)
		b.succeed(b.started(1, "w1")...)
		b.forget("w", "", 0)
		b.s.checkEmpty(b.T)
	})
}
