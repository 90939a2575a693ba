package eventlog_test

import (
	"os"
	"testing"

	"github.com/storageapi/storageapi/internal/testdir"
)

func TestMain(m *testing.M) {
	testdir.InMemory()
	os.Exit(m.Run())
}
