package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
)

// TestMain also lets the test binary run as the receiver.
func TestMain(m *testing.M) {
	if fault, ok := os.LookupEnv(receiverVariable); ok {
		exit(receive(os.Stdin, os.Stdout, fault))
	}
	os.Exit(m.Run())
}

// load runs the program with the flags, and returns its output.
func load(t *testing.T, args string) (string, error) {
	t.Helper()
	s, err := parse(strings.Fields(args), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = s.run(t.Context(), &out)
	t.Log("\n" + out.String())
	return out.String(), err
}

func TestEverythingArrives(t *testing.T) {
	hosts := "1"
	if runtime.GOOS == "linux" {
		hosts = "3"
	}
	out, err := load(t, "-rate 100,200 -duration 200ms -body 2048 -webhooks 4 -hosts "+hosts)
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"20 acknowledged, 0 failed, 20 arrived, 0 missing", "40 acknowledged, 0 failed, 40 arrived, 0 missing",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not print %q", want)
		}
	}
}

func TestLossIsReported(t *testing.T) {
	for fault, want := range map[string]string{
		faultLose: "1 of 100 acknowledged events did not arrive",
		faultExit: "reports from the receiver ended",
	} {
		t.Run(fault, func(t *testing.T) {
			out, err := load(t, "-rate 500 -duration 200ms -webhooks 2 -fault "+fault)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(out, " 0 missing") {
				t.Errorf("got error %v, want one with %q", err, want)
			}
		})
	}
}

// An interrupt ends a stage early, after acknowledged events have arrived.
func TestInterrupt(t *testing.T) {
	s, err := parse([]string{"-rate", "100,100", "-webhooks", "2", "-duration", "1h"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out := &interrupter{cancel: cancel}
	if err := s.run(ctx, out); err != nil {
		t.Error(err)
	}
	if n := strings.Count(out.String(), ", 0 missing"); n != 1 {
		t.Errorf("it printed %q", out)
	}
}

// An interrupter is an output that interrupts the program at the first line.
type interrupter struct {
	bytes.Buffer
	cancel context.CancelFunc
}

func (i *interrupter) Write(p []byte) (int, error) {
	i.cancel()
	return i.Buffer.Write(p)
}

func TestFlagsAreChecked(t *testing.T) {
	for _, args := range []string{"-rate 0", "-rate 1,x", "-hosts 0", "-hosts 100001", "-fault none", "-duration 0s", "-body -1", "on"} {
		if s, err := parse(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("parse(%q) = %+v, want an error", args, s)
		}
	}
}
