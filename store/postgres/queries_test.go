package postgres_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/store/postgres"
)

// TestQueries checks that each query file is one statement that the database can prepare, and that
// its comment explains its parameters.
func TestQueries(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("queries/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	schema := quoted(postgres.SchemaOf(inSchema(t)))
	conn, err := pool(t).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var comment, statement strings.Builder
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "--") && statement.Len() == 0 {
				comment.WriteString(line)
			} else {
				statement.WriteString(line)
			}
		}
		if comment.Len() == 0 {
			t.Errorf("%s has no comment", name)
		}
		explained := comment.String()
		for _, span := range regexp.MustCompile(`\$(\d+) to \$(\d+)`).FindAllStringSubmatch(explained, -1) {
			first, _ := strconv.Atoi(span[1])
			last, _ := strconv.Atoi(span[2])
			for i := first; i <= last; i++ {
				explained += fmt.Sprintf(" $%d", i)
			}
		}
		for _, parameter := range regexp.MustCompile(`\$\d+\b`).FindAllString(statement.String(), -1) {
			if !regexp.MustCompile(regexp.QuoteMeta(parameter) + `\b`).MatchString(explained) {
				t.Errorf("%s: the comment does not explain %s", name, parameter)
			}
		}
		if _, err := conn.Conn().Prepare(t.Context(), name, strings.ReplaceAll(string(text), "storageapi.", schema+".")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := conn.Conn().Deallocate(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
}
