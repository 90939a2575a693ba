//go:build unix

package webhooks

import (
	"io"
	"syscall"
)

func (w *wire) readNow(b []byte) (int, error) {
	if w.raw == nil {
		return 0, errQuiet
	}
	w.into = b
	err := w.raw.Read(w.look)
	w.into = nil
	switch {
	case err != nil:
		return 0, err
	case w.err == syscall.EAGAIN:
		return 0, errQuiet
	case w.err != nil:
		return 0, w.err
	case w.n == 0:
		return 0, io.EOF
	}
	return w.n, nil
}

func (w *wire) look(fd uintptr) (done bool) {
	w.n, w.err = syscall.Read(int(fd), w.into)
	return true
}
