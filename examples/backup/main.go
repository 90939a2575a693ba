// Backup is a host that copies its file every day and keeps the newest seven copies. Copy backUp
// to your own host. Store the copies on another machine or in a bucket, rather than on the same
// disk.
//
//	go run ./examples/backup -file storage.db -to backups
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/storageapi/storageapi"
)

func main() {
	file := flag.String("file", "storage.db", "the `file` that keeps everything")
	dir := flag.String("to", "backups", "the `directory` of the copies")
	keep := flag.Int("keep", 7, "how `many` are kept")
	every := flag.Duration("every", 24*time.Hour, "how often a copy is made")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *file, *dir, *keep, *every)
	stop()
	if err != nil {
		log.Fatal("backup: ", err)
	}
}

func run(ctx context.Context, file, dir string, keep int, every time.Duration) (err error) {
	api, err := storageapi.NewHandler(storageapi.Config{Path: file})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, api.Close()) }()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	go backUpDaily(ctx, api, dir, keep, every)
	return api.Run(ctx) // and an HTTP server, as in examples/host
}

// backUpDaily makes a copy at once, and another one after each interval, until ctx is done. It logs
// failures and continues with the next interval; a failure does not affect older copies.
func backUpDaily(ctx context.Context, api *storageapi.Handler, dir string, keep int, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, every)
		if path, err := backUp(limited, api, dir, keep, time.Now()); err != nil {
			log.Print("backup: ", err)
		} else {
			log.Print("backup: ", path)
		}
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// backUp makes a copy in the directory, and then removes all but the newest keep copies. The copy
// gets its final name when it is complete and synced. Only one goroutine at a time may call backUp.
func backUp(ctx context.Context, api *storageapi.Handler, dir string, keep int, now time.Time) (path string, err error) {
	part := filepath.Join(dir, "storage.part") // overwrites the file of a killed process
	file, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	_, err = api.Backup(ctx, file)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return "", errors.Join(err, os.Remove(part))
	}
	path = filepath.Join(dir, now.UTC().Format("storage-2006-01-02T150405Z.db"))
	if err := os.Rename(part, path); err != nil {
		return "", err
	}
	copies, err := filepath.Glob(filepath.Join(dir, "storage-*Z.db"))
	if err != nil {
		return "", err
	}
	slices.Sort(copies) // the names sort by time
	for _, old := range copies[:max(len(copies)-keep, 0)] {
		err = errors.Join(err, os.Remove(old))
	}
	return path, err
}
