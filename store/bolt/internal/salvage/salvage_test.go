package salvage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// written returns a file with a large bucket, a small one and values of many pages.
func written(tb testing.TB) (path string, rows map[string][][2]string) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), "file.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, PageSize: 4096})
	if err != nil {
		tb.Fatal(err)
	}
	rows = make(map[string][][2]string)
	for bucket, n := range map[string]int{"large": 1500, "small": 3, "empty": 0, "wide": 20} {
		err := db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte(bucket))
			rows[bucket] = [][2]string{}
			for i := range n {
				k, v := fmt.Sprintf("%06d", 2*i), fmt.Sprintf("value of %d", i)
				if bucket == "wide" {
					v = string(bytes.Repeat([]byte(v), 1000))
				}
				rows[bucket] = append(rows[bucket], [2]string{k, v})
				err = errors.Join(err, b.Put([]byte(k), []byte(v)))
			}
			return err
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		tb.Fatal(err)
	}
	return path, rows
}

func scanAll(f *File, bucket, from string) (list [][2]string, damaged bool) {
	list = [][2]string{}
	damaged = f.Scan([]byte(bucket), []byte(from), func(k, v []byte) bool {
		list = append(list, [2]string{string(k), string(v)})
		return true
	})
	return list, damaged
}

func TestScan(t *testing.T) {
	path, rows := written(t)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if f.LastLost() {
		t.Error("a meta page cannot be read")
	}
	for bucket, want := range rows {
		if got, damaged := scanAll(f, bucket, ""); damaged || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %d rows of %d, damaged %v", bucket, len(got), len(want), damaged)
		}
	}
	for i := range 1500 {
		from := fmt.Sprintf("%06d", 2*i-1)
		var first string
		f.Scan([]byte("large"), []byte(from), func(k, _ []byte) bool { first = string(k); return false })
		if want := rows["large"][i][0]; i > 0 && first != want {
			t.Fatalf("the first from %s on is %q, want %q", from, first, want)
		}
		if value, damaged := f.Get([]byte("large"), []byte(rows["large"][i][0])); damaged || string(value) != rows["large"][i][1] {
			t.Fatalf("Get = %q, %v", value, damaged)
		}
	}
	if value, damaged := f.Get([]byte("large"), []byte("000001")); value != nil || damaged {
		t.Errorf("Get of none = %q, %v", value, damaged)
	}
	if _, damaged := scanAll(f, "none", ""); !damaged {
		t.Error("a bucket that is not there is not damaged")
	}
}

// Each page that is overwritten is missing, said to be, and all others are read.
func TestScanOfWhatIsDamaged(t *testing.T) {
	path, rows := written(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for id := 2; id < len(whole)/4096; id++ {
		damaged := bytes.Clone(whole)
		for i := range 4096 {
			damaged[id*4096+i] = 0xa5
		}
		f, err := New(bytes.NewReader(damaged))
		if err != nil {
			t.Fatal(err)
		}
		for bucket, want := range rows {
			got, said := scanAll(f, bucket, "")
			known := make(map[string]bool)
			for _, row := range want {
				known[row[0]] = true
			}
			for _, row := range got {
				if !known[row[0]] && bucket != "wide" { // whose keys are in the middle of pages, too
					t.Fatalf("page %d: %s has %q", id, bucket, row[0])
				}
			}
			if len(got) < len(want) && !said {
				t.Fatalf("page %d: %d rows of %s are missing, and not said to be", id, len(want)-len(got), bucket)
			}
		}
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	path, _ := written(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string][]byte{"empty": nil, "other": bytes.Repeat([]byte("x"), 1<<16), "no metas": append(make([]byte, 8192), whole[8192:]...)} {
		if _, err := New(bytes.NewReader(file)); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, meta := range []int{0, 4096} {
		one := bytes.Clone(whole)
		copy(one[meta:], make([]byte, 4096))
		if f, err := New(bytes.NewReader(one)); err != nil || f.pageSize != 4096 || !f.LastLost() {
			t.Errorf("with one meta page: %v", err)
		}
	}
}

// FuzzScan: any bytes are read to an end.
func FuzzScan(f *testing.F) {
	path, _ := written(f)
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(20_000), []byte{1, 2, 3}, []byte("000100"))
	f.Add(uint32(16), []byte{0xff}, []byte(""))
	f.Add(uint32(8192), []byte{2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0}, []byte("wide"))
	f.Fuzz(func(t *testing.T, at uint32, bytesThere, from []byte) {
		damaged := bytes.Clone(whole)
		copy(damaged[int(at)%len(damaged):], bytesThere)
		file, err := New(bytes.NewReader(damaged))
		if err != nil {
			return
		}
		for _, bucket := range []string{"large", "small", "empty", "wide"} {
			last := []byte(nil)
			file.Scan([]byte(bucket), from, func(k, _ []byte) bool {
				if last != nil && bytes.Compare(k, last) <= 0 || bytes.Compare(k, from) < 0 {
					t.Fatalf("%q after %q, from %q", k, last, from)
				}
				last = k
				return true
			})
		}
	})
}
