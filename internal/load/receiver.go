package main

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// receiverVariable names the variable that makes this program nothing but the receiver. It
// holds the fault.
const receiverVariable = "STORAGEAPI_LOAD_RECEIVER"

// What the receiver can be made to do to its request number faultAt.
const (
	faultLose = "lose" // answer it and report nothing
	faultExit = "exit"
	faultAt   = 300 // after what [host.prepare] sends
)

const maxHosts = 100_000

// A receiver is the process that takes the events, as the program that starts it knows it.
type receiver struct {
	port    int
	trusted *x509.CertPool
	cmd     *exec.Cmd
	stdin   io.Closer
	told    chan struct{} // closed when it reports no more
}

// An opening is the first that the receiver says; reports follow.
type opening struct {
	Port      int
	Authority []byte // its certificate, DER
}

// A report says what has arrived since the last one.
type report struct {
	Arrivals  []arrival
	Processor time.Duration // that the process has used since it began
}

// An arrival is a request: the number of the event, and when it came.
type arrival struct {
	Number int
	At     int64 // nanoseconds since 1970, by the clock that all processes share
}

// startReceiver starts the process. The ledger gets what it reports.
func startReceiver(hosts int, fault string, l *ledger) (*receiver, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &receiver{cmd: exec.Command(self), told: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), receiverVariable+"="+fault)
	r.cmd.Stderr = os.Stderr
	in, err := r.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	r.stdin = in
	var begun opening
	reports := gob.NewDecoder(bufio.NewReader(out))
	if err := errors.Join(gob.NewEncoder(in).Encode(hosts), reports.Decode(&begun)); err != nil {
		return nil, errors.Join(fmt.Errorf("start the receiver: %w", err), in.Close(), r.cmd.Wait())
	}
	authority, err := x509.ParseCertificate(begun.Authority)
	if err != nil {
		return nil, errors.Join(err, in.Close(), r.cmd.Wait())
	}
	r.port, r.trusted = begun.Port, x509.NewCertPool()
	r.trusted.AddCert(authority)
	go func() {
		defer close(r.told)
		for {
			var next report
			if err := reports.Decode(&next); err != nil {
				l.end(fmt.Errorf("the receiver reports no more: %w", err))
				return
			}
			l.note(next)
		}
	}()
	return r, nil
}

// url returns the address of the host of that number: 127.0.0.1 and those after it.
func (r *receiver) url(host int) string {
	n := host + 1
	return fmt.Sprintf("https://127.%d.%d.%d:%d/hook", n>>16, n>>8&0xff, n&0xff, r.port)
}

// stop ends the process.
func (r *receiver) stop() error {
	_ = r.stdin.Close()
	<-r.told
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("the receiver: %w", err)
	}
	return nil
}

// receive is that process. It ends when its input does: an interrupt of a terminal, which it
// gets too, is for the sender to heed.
func receive(in io.Reader, out io.Writer, fault string) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	var hosts int
	if err := gob.NewDecoder(in).Decode(&hosts); err != nil {
		return err
	}
	a, err := newAuthority()
	if err != nil {
		return err
	}
	at := "127.0.0.1:0"
	if hosts > 1 {
		at = "0.0.0.0:0" // nothing else is all of 127.0.0.0/8; the authority refuses others
	}
	listener, err := net.Listen("tcp4", at)
	if err != nil {
		return err
	}
	reports := gob.NewEncoder(out)
	if err := reports.Encode(opening{Port: listener.Addr().(*net.TCPAddr).Port, Authority: a.certificate.Raw}); err != nil {
		return err
	}

	var mu sync.Mutex
	var arrivals []arrival
	requests := 0
	server := &http.Server{
		TLSConfig: a.config(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			now := time.Now().UnixNano()
			body, err := io.ReadAll(r.Body)
			number, ok := numberIn(body)
			if err != nil || !ok {
				http.Error(w, "no event of this program", http.StatusBadRequest)
				return
			}
			mu.Lock()
			requests++
			faulty := fault != "" && requests == faultAt
			if !faulty {
				arrivals = append(arrivals, arrival{number, now})
			}
			mu.Unlock()
			if faulty && fault == faultExit {
				os.Exit(1)
			}
			w.WriteHeader(http.StatusNoContent)
		}),
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	ends := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in)
		close(ends)
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ends:
			return server.Close()
		case <-tick.C:
		}
		mu.Lock()
		next := report{arrivals, processorTime()}
		arrivals = nil
		mu.Unlock()
		if err := reports.Encode(next); err != nil {
			return err
		}
	}
}

// numberIn returns the number of the event, which is what its data says is used.
func numberIn(body []byte) (number int, ok bool) {
	_, rest, _ := bytes.Cut(body, []byte(`"used":`))
	digits, _, _ := bytes.Cut(rest, []byte(","))
	number, err := strconv.Atoi(string(digits))
	return number, err == nil
}
