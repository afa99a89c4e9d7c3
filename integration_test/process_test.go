package integration_test

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/jobs"
	"github.com/keytill/keytill/inventory"
)

// elsewhere is keytill in another process than the storefront's: a command of an operator.
func (p *mailtown) elsewhere() *fulfillment.Service {
	p.t.Helper()
	inserter, err := jobs.NewInserter(p.db, p.clock.now, slog.New(slog.DiscardHandler))
	p.must(err)
	service, err := fulfillment.New(fulfillment.Config{DB: p.db, Jobs: inserter, Keyset: p.keyset, Now: p.clock.now})
	p.must(err)
	return service
}

// restockWith imports one key by a process's own means.
func (p *mailtown) restockWith(service *fulfillment.Service, pool inventory.Pool) {
	p.t.Helper()
	_, served, err := service.Import(p.ctx, inventory.Import{Pool: pool, File: strings.NewReader("another-key"), FileName: "more.txt", Actor: "test"})
	p.must(err)
	if served != 0 {
		p.t.Errorf("another process served %d units", served)
	}
}

// licences are the rows that the storefront has written.
func (p *mailtown) licences() []string {
	p.t.Helper()
	rows, err := p.db.Query(p.ctx, `SELECT order_id || ' ' || state FROM licences`)
	p.must(err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	p.must(err)
	slices.Sort(found)
	return found
}

func (p *mailtown) wantLicences(want ...string) {
	p.t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), append([]string{}, p.licences()...)); diff != "" {
		p.t.Errorf("the storefront's rows (-want +got):\n%s", diff)
	}
}
