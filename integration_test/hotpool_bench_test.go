package integration_test

import (
	"fmt"
	"testing"

	"github.com/keytill/keytill/inventory"
)

// BenchmarkHotPool settles new paid orders that all want keys of one pool, and beside it, turn by turn, orders of which each
// wants a key of another of 64 pools. In the usual way the first wait for each other; here nothing is theirs alone.
func BenchmarkHotPool(b *testing.B) {
	const pools = 64
	ctx := b.Context()
	db := benchDatabase(b)
	service := benchService(b, db)
	keys := quick(40_000, 200_000)
	hot := fillShelf(b, db, service, "hot", keys, 0)
	cold := make([]inventory.Pool, pools)
	for i := range cold {
		cold[i] = fillShelf(b, db, service, fmt.Sprintf("cold-%d", i), keys/pools, 0)
	}

	rates := race(b, db, []contender{
		{"one pool", benchWorkers, func(n int64) error { return settleOne(ctx, service, hot, n) }},
		{"64 pools", benchWorkers, func(n int64) error { return settleOne(ctx, service, cold[n%pools], n) }},
	})
	b.ReportMetric(rates["one pool"], "settles/s")
	b.ReportMetric(rates["64 pools"], "64pools/s")
	b.ReportMetric(rates["one pool"]/rates["64 pools"], "x/64pools")
	b.ReportMetric(0, "ns/op")
}

// quick is how much of something a benchmark does: less of it with -short.
func quick(short, full int) int {
	if testing.Short() {
		return short
	}
	return full
}
