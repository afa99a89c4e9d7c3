package migrations

import (
	"testing"
	"testing/fstest"
)

func TestHashChangesWithEveryFileItsNameAndItsText(t *testing.T) {
	t.Parallel()
	seen := make(map[string]string)
	for name, files := range map[string]fstest.MapFS{
		"one file":    {"00001_a.sql": {Data: []byte("A")}},
		"other text":  {"00001_a.sql": {Data: []byte("B")}},
		"other name":  {"00001_b.sql": {Data: []byte("A")}},
		"another one": {"00001_a.sql": {Data: []byte("A")}, "00002_b.sql": {Data: []byte("B")}},
	} {
		hash, err := hashOf(files)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[hash]; ok {
			t.Errorf("%s and %s have the same hash", name, other)
		}
		seen[hash] = name
	}
	hash, err := hashOf(fstest.MapFS{"00001_a.sql": {Data: []byte("A")}, "migrations.go": {Data: []byte("package")}})
	if err != nil || seen[hash] != "one file" {
		t.Errorf("a file that is no migration changes the hash (error %v)", err)
	}
}
