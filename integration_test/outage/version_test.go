package outage_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/pgserver"
	"github.com/keytill/keytill/internal/pgtest"
)

// newest is the major version that the short form tries beside the installed one. The scenarios and other tests run on all
// of 15 to 18 by `bash .ci/postgres-versions`.
const newest = "18"

// fetchPatience bounds the fetching of some 20 MB, once: they are kept.
const fetchPatience = 90 * time.Second

// TestEverythingWorksOnTheNewestPostgres needs npm and its registry. Where they cannot be reached, the short form says so.
func TestEverythingWorksOnTheNewestPostgres(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), fetchPatience)
	defer cancel()
	fetch := exec.CommandContext(ctx, "bash", "../../.ci/postgres-versions", "--fetch", newest)
	var said strings.Builder
	fetch.Stderr = &said
	out, err := fetch.Output()
	if err != nil {
		if *long {
			t.Fatalf("PostgreSQL %s cannot be fetched: %v\n%s", newest, err, said.String())
		}
		t.Logf("NOT TESTED: PostgreSQL %s cannot be fetched: %v\n%s", newest, err, said.String())
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self, "-test.run", "^TestEverythingWorksOnThisPostgres$", "-test.v")
	child.Env = append(os.Environ(), "KEYTILL_PG_BIN="+strings.TrimSpace(string(out)), thisVersion+"="+newest)
	text, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "--- PASS") {
		t.Errorf("on PostgreSQL %s: %v\n%s", newest, err, text)
	}
}

// thisVersion makes TestEverythingWorksOnThisPostgres run, and is the version that it must meet.
const thisVersion = "KEYTILL_OUTAGE_POSTGRES"

// TestEverythingWorksOnThisPostgres is nothing by itself: TestEverythingWorksOnTheNewestPostgres runs it in a process of its
// own.
func TestEverythingWorksOnThisPostgres(t *testing.T) {
	major := os.Getenv(thisVersion)
	if major == "" {
		return
	}
	server := pgtest.Server(t, pgserver.Config{Fast: true})
	address := emptyDatabase(t, server, "whole")
	c := wholeFlow(t, address, address, 17)
	var version string
	c.must(c.db.QueryRow(t.Context(), `SHOW server_version`).Scan(&version))
	if !strings.HasPrefix(version, major+".") {
		t.Errorf("the server is PostgreSQL %s, want %s", version, major)
	}
}
